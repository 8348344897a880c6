"""The outcome of a fit in words."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from natmix.models._base import coordinate_names
from natmix.models.pytree import leaf_name

if TYPE_CHECKING:
    from natmix._result import Result

_ENDINGS = {
    "converged": "converged: the ELBO no longer rises beyond its noise, and new components gain no weight",
    "max_iterations": "stopped at the limit of iterations; the ELBO may still rise",
    "max_evaluations": "stopped at the limit of evaluations; the ELBO may still rise",
    "max_seconds": "stopped at the time limit; the ELBO may still rise",
    "interrupted": "INTERRUPTED: this is the best mixture up to then",
    "failed": "FAILED: the target raised an error; this is the best mixture up to then",
}
_MOST_ROWS = 8
_MOST_VARIABLES = 20


def summary(result: "Result") -> str:
    """Several lines of text."""
    counts, times = result.counts, result.timings
    rate = counts.iterations / times.iterations if times.iterations > 0 else float("nan")
    mixture = result.mixture
    kind = "diagonal" if mixture.is_diagonal else "full"
    lines = [
        f"{result.algorithm.codename} on {mixture.dim} dimensions: {_ENDINGS[result.stopped]}.",
        f"  ELBO         {result.elbo}",
        f"  mixture      {mixture.num_components} components, "
        f"effectively {_effective(np.asarray(mixture.weights)):.1f} ({kind} covariances, "
        f"{mixture.dtype})",
        f"  evaluations  {counts.evaluations:,} of the target ({counts.training_evaluations:,} in training, "
        f"{counts.elbo_evaluations:,} for the ELBO)",
        f"  time         {times.total:.1f} s, of which {times.compilation:.1f} s compiling; "
        f"{counts.iterations:,} iteration{'s' if counts.iterations != 1 else ''} at {rate:.3g} per second",
        f"  components   {counts.added} added, {counts.deleted} deleted, {counts.left_out} of negligible "
        f"weight left out; {counts.failed_updates} updates not usable and skipped",
    ]
    lines += _table(result)
    if result.diagnosis is not None:
        lines += str(result.diagnosis).splitlines()
    lines += [f"  note: {note}" for note in result.notes]
    return "\n".join(lines)


def _effective(weights: np.ndarray) -> float:
    w = np.asarray(weights, dtype=float)
    return float(np.exp(-np.sum(w[w > 0] * np.log(w[w > 0]))))


def _table(result: "Result") -> list[str]:
    if result.model is not None and result.draws is not None:
        return _named_table(result.model.constrain(result.draws.x))
    heaviest = result.mixture.top(min(_MOST_ROWS, result.mixture.num_components))
    shares = np.sort(np.asarray(result.mixture.weights, dtype=float))[::-1]
    rows = ["  weight   mean"]
    for share, mean in zip(shares, np.asarray(heaviest.means), strict=False):
        shown = "  ".join(f"{v:9.3f}" for v in mean[:6]) + ("  …" if len(mean) > 6 else "")
        rows.append(f"  {share:6.2%}  {shown}")
    left = result.mixture.num_components - heaviest.num_components
    if left:
        rows.append(f"  … and {left} more with {shares[_MOST_ROWS:].sum():.2%} together")
    return rows


def _digits(value: float, sd: float) -> str:
    """Four digits, more where the standard deviation would not show in them."""
    shown = 4
    if sd > 0 and np.isfinite(value / sd):
        shown = int(np.clip(np.ceil(np.log10(max(abs(value) / sd, 1))) + 2, 4, 12))
    return f"{value:.{shown}g}"


def _named_table(samples: Any) -> list[str]:
    """Mean, standard deviation and quantiles of the model's variables."""
    columns: list[tuple[str, np.ndarray]] = []
    for path, value in jax.tree_util.tree_leaves_with_path(samples):
        flat = np.asarray(value, float).reshape(len(value), -1)
        columns += zip(coordinate_names(leaf_name(path) or "x", np.shape(value)[1:]), flat.T, strict=True)
    shown = columns[:_MOST_VARIABLES]
    wide = max([18, *(len(name) for name, _ in shown)])
    rows = [f"  {'variable':{wide}}       mean        sd        5%       95%"]
    for name, column in shown:
        sd = float(column.std())
        mean, low, high = (_digits(v, sd) for v in (column.mean(), *np.quantile(column, [0.05, 0.95])))
        rows.append(f"  {name:{wide}} {mean:>10} {sd:9.3g} {low:>9} {high:>9}")
    if len(columns) > _MOST_VARIABLES:
        rows.append(f"  … and {len(columns) - _MOST_VARIABLES} more")
    return rows
