"""`Result.summary`: a fit in words and numbers."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from natmix.estimate import counted
from natmix.models import AbstractModel
from natmix.result.export import variables
from natmix.result.summary_table import Variable, table

if TYPE_CHECKING:
    from natmix.result.result import Result

_ENDINGS = {
    "converged": "converged: the ELBO no longer rises beyond its noise, and new components gain no weight",
    "max_iterations": "stopped at the limit of iterations; the ELBO may still rise",
    "max_evaluations": "stopped at the limit of evaluations; the ELBO may still rise",
    "max_seconds": "stopped at the time limit; the ELBO may still rise",
    "until": "stopped at the -ELBO asked for; the ELBO may still rise",
    "callback": "stopped by the callback; the ELBO may still rise",
    "interrupted": "INTERRUPTED: this is the best mixture up to then",
    "failed": "FAILED: the target raised an error; this is the best mixture up to then",
}
_SEARCHES = {"mode search": "a mode search", "chains": "Markov chains"}
_MAX_ROWS = 8


def summary(result: "Result") -> str:
    """Several lines of text."""
    counts, times = result.counts, result.timings
    rate = counts.iterations / times.iterations if times.iterations > 0 else float("nan")
    mixture = result.mixture
    refuted = (
        f", {counts.refuted_evaluations:,} to find it not accurate yet" if counts.refuted_evaluations else ""
    )
    lines = [
        title(result),
        f"  ELBO         {result.elbo}",
        f"  mixture      {counted(mixture.num_components, 'component')}, effectively "
        f"{_effective(np.asarray(mixture.weights)):.1f} "
        f"({mixture.covariance_family} covariances, {mixture.dtype})",
        f"  evaluations  {counts.evaluations:,} of the target ({counts.first_evaluations:,} to initialise, "
        f"{counts.training_evaluations:,} in training, {counts.elbo_evaluations:,} for the ELBO, "
        f"{counts.verification_evaluations:,} to verify{refuted})",
        f"  time         {times.total:.1f} s, of which {times.start:.1f} s to initialise and "
        f"{times.compilation:.1f} s compiling; "
        f"{counted(counts.iterations, 'iteration')} at {rate:.3g} per second",
        f"  components   {counts.added} added, {counts.deleted} deleted, {counts.left_out} of negligible "
        f"weight left out; {counted(counts.failed_updates, 'failed update')} skipped",
    ]
    lines += _repairs(result)
    lines += _table(result)
    if result.diagnosis is not None:
        lines += str(result.diagnosis).splitlines()
    lines += [f"  note: {note}" for note in result.notes]
    return "\n".join(lines)


def title(result: "Result") -> str:
    """What was fitted, and how the fit ended."""
    combined = result.settings.get("combined")
    name = f"{len(combined)} fits combined" if combined else result.algorithm.codename
    judged = result.stopped == "converged" and result.settings.get("accuracy") is not None
    ending = "converged" if judged else _ENDINGS[result.stopped]
    return f"{name} on {counted(result.mixture.dim, 'dimension')}: {ending}."


def _repairs(result: "Result") -> list[str]:
    """What the searches of the fit found missing, and whether it was repaired."""
    made = result.verification
    if made is None:
        return []
    lines = [
        f"  repaired     {counted(r.components, 'component')} added for what {_SEARCHES[r.by]} found after "
        f"{counted(r.iteration, 'iteration')}"
        for r in made.repairs
    ]
    return [*lines, *([f"  not repaired {made.unrepaired}"] if made.unrepaired else [])]


def _effective(weights: np.ndarray) -> float:
    w = np.asarray(weights, dtype=float)
    return float(np.exp(-np.sum(w[w > 0] * np.log(w[w > 0]))))


def _table(result: "Result") -> list[str]:
    if result.model is not None and result.draws is not None:
        return [*_weights(result), *table(summary_variables(result, result.model, result.draws.x))]
    heaviest = result.mixture.top(min(_MAX_ROWS, result.mixture.num_components))
    shares = np.sort(np.asarray(result.mixture.weights, dtype=float))[::-1]
    rows = ["  weight   mean"]
    for share, mean in zip(shares, np.asarray(heaviest.means), strict=False):
        shown = "  ".join(f"{v:9.3f}" for v in mean[:6]) + ("  …" if len(mean) > 6 else "")
        rows.append(f"  {share:6.2%}  {shown}")
    left = result.mixture.num_components - heaviest.num_components
    if left:
        rows.append(f"  … and {left} more with {shares[_MAX_ROWS:].sum():.2%} together")
    return rows


def _weights(result: "Result") -> list[str]:
    """The components' shares, where no table of components has them."""
    shares = np.sort(np.asarray(result.mixture.weights, dtype=float))[::-1]
    if len(shares) == 1:
        return []
    text = ", ".join(f"{share:.0%}" if share >= 0.01 else f"{share:.2%}" for share in shares[:_MAX_ROWS])
    left = len(shares) - _MAX_ROWS
    more = f" and {left} more with {shares[_MAX_ROWS:].sum():.1%} together" if left > 0 else ""
    return [f"  weights      {text}{more}"]


def summary_variables(result: "Result", model: AbstractModel, x: Float[np.ndarray, "N D"]) -> list[Variable]:
    """The variables of the model at samples, as a summary shows them."""
    found = variables(result, x)
    return [
        Variable(name, model.labels(name, value.shape[1:]), value.reshape(len(value), -1).astype(float))
        for name, value in found.items()
    ]
