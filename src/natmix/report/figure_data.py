"""The numbers behind a report's figures, as plain data for JSON."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.psis import tail_size
from natmix.plot.trajectory import running_mean
from natmix.report.variables import ReportDraws, ReportVariable

if TYPE_CHECKING:
    from natmix.diagnostics.evidence import SampleEvidence
    from natmix.mixture import Mixture
    from natmix.result.result import Result

MOST_VARIABLES = 120
"""Variables that the corner plot can show."""
MOST_DRAWS = 2000
_NUMBERS_OF_DRAWS, _NUMBERS_OF_COMPONENTS = 150_000, 100_000
"""Numbers in the file: at most about 8 bytes each."""
_CURVE = 160
"""Points of a density."""
_TAIL = 0.001
_MOST_ITERATIONS = 1000
"""Points of a trace."""
_BINS = 60
_FIRST_SHOWN = 4
_DRAWS_DIGITS, _DIGITS = 5, 7


class SeedCurve(NamedTuple):
    """The ELBO of one seed of a run over its evaluations.

    Attributes:
        label: of the seed.
        evaluations: of the target.
        neg_elbo: estimated there.
    """

    label: str
    evaluations: Float[np.ndarray, " T"]
    neg_elbo: Float[np.ndarray, " T"]


def corner_data(mixture: "Mixture", draws: ReportDraws) -> dict[str, Any]:
    """Draws, components, and the densities of single variables."""
    variables = draws.variables[:MOST_VARIABLES]
    rows = evenly(len(draws.x), min(MOST_DRAWS, _NUMBERS_OF_DRAWS // max(len(variables), 1)))
    return {
        "variables": [_variable(mixture, v) for v in variables],
        "values": [rounded(v.values[rows], _DRAWS_DIGITS) for v in variables],
        "weights": None if draws.weights is None else rounded(draws.weights[rows], _DRAWS_DIGITS),
        "mode": draws.mode[rows].tolist(),
        "all_draws": len(draws.x),
        "all_variables": len(draws.variables),
        "components": _components(mixture, variables),
        "shown": _shown(variables, draws.mode),
    }


def _variable(mixture: "Mixture", variable: ReportVariable) -> dict[str, Any]:
    values = variable.values[np.isfinite(variable.values)]
    low, high = np.quantile(values, [_TAIL, 1 - _TAIL]) if len(values) else (0.0, 1.0)
    margin = 0.04 * (high - low) or 0.5 * max(abs(float(low)), 1.0) * 1e-3
    low, high = float(low - margin), float(high + margin)
    found: dict[str, Any] = {"name": variable.name, "latent": variable.latent, "map": None, "density": None}
    entry = variable.entry
    if entry is not None:
        support = entry.map.support
        low, high = max(low, support[0]), min(high, support[1])
        inside = low + (np.arange(_CURVE) + 0.5) / _CURVE * (high - low)
        z = np.asarray(entry.map.unconstrain(inside), float)
        one = mixture.marginal([entry.coordinate])
        log_density = np.asarray(one.log_prob(z[:, None].astype(mixture.dtype)), float)
        found["density"] = rounded(np.exp(log_density - entry.map.log_slope(z)), _DRAWS_DIGITS)
        form = entry.map
        found["map"] = {
            "coordinate": entry.coordinate,
            "kind": form.kind,
            "offset": form.offset,
            "scale": form.scale,
        }
    return {**found, "range": [low, high]}


def _components(mixture: "Mixture", variables: tuple[ReportVariable, ...]) -> dict[str, Any]:
    """The heaviest components, in the coordinates that variables are functions of."""
    used = sorted({v.entry.coordinate for v in variables if v.entry is not None})
    each = 1 + len(used) * (len(used) + 3) // 2
    K = min(mixture.num_components, max(_NUMBERS_OF_COMPONENTS // each, 1)) if used else 0
    weights = np.asarray(mixture.weights, float)
    heaviest = np.argsort(-weights, kind="stable")[:K]
    means = np.asarray(mixture.means, float)[heaviest][:, used]
    lower = np.tril_indices(len(used))
    covariances = np.asarray(mixture.covariances, float)[heaviest][:, used][:, :, used]
    return {
        "coordinates": used,
        "number": mixture.num_components,
        "weights": rounded(weights[heaviest], _DIGITS),
        "means": [rounded(m, _DIGITS) for m in means],
        "covariances": [rounded(c[lower], _DIGITS) for c in covariances],
    }


def _shown(variables: tuple[ReportVariable, ...], mode: np.ndarray) -> list[int]:
    """The variables shown first: those in which the modes differ most, or the first ones."""
    latent = [i for i, v in enumerate(variables) if v.latent and np.all(np.isfinite(v.values))]
    latent = [i for i in latent if np.ptp(variables[i].values) > 0] or list(range(len(variables)))
    if len(latent) <= _FIRST_SHOWN or len(np.unique(mode)) < 2:
        return latent[:_FIRST_SHOWN]
    shares = [_between(variables[i].values, mode) for i in latent]
    best = np.argsort(-np.array(shares), kind="stable")[:_FIRST_SHOWN]
    return sorted(latent[b] for b in best)


def _between(values: Float[np.ndarray, " N"], mode: np.ndarray) -> float:
    """The share of the variance that is between modes."""
    count = np.bincount(mode)
    mean = np.bincount(mode, values) / np.maximum(count, 1)
    variance = float(np.var(values))
    return float(count @ (mean - values.mean()) ** 2 / count.sum()) / variance if variance > 0 else 0.0


def trace_data(result: "Result") -> dict[str, Any] | None:
    """ELBO, KL and number of components over the iterations; None without any."""
    trajectory = result.trajectory
    if not trajectory or not len(trajectory.get("elbo", ())):
        return None
    elbo = np.asarray(trajectory["elbo"], float)
    n = len(elbo)
    kept = evenly(n, _MOST_ITERATIONS)
    found: dict[str, Any] = {
        "iterations": (kept + 1).tolist(),
        "elbo": rounded(elbo[kept], _DIGITS),
        "mean": rounded(running_mean(elbo, max(1, n // 40))[kept], _DIGITS),
        "window": max(1, n // 40),
        "all_iterations": n,
    }
    for name, field in (
        ("evaluations", "total_evaluations"),
        ("seconds", "seconds"),
        ("kl", "kl"),
        ("components", "components"),
    ):
        values = trajectory.get(field)
        if values is not None and len(values) == n and np.any(np.isfinite(np.asarray(values, float))):
            found[name] = rounded(np.asarray(values, float)[kept], 12 if name == "evaluations" else _DIGITS)
    return found


def weights_data(
    evidence: "SampleEvidence | None", log_ratio: Float[np.ndarray, " N"]
) -> dict[str, Any] | None:
    """A histogram of the log weights and their largest values; None where none is positive."""
    if evidence is None or not np.isfinite(evidence.log_evidence.value):
        return None
    log_w = log_ratio - evidence.log_evidence.value
    positive = log_w[np.isfinite(log_w)]
    low, high = float(positive.min()), float(positive.max())
    middle = float(np.median(positive))
    low = max(low, middle - 10 * max(high - middle, 0.1))  # a few tiny weights would squeeze the rest
    counts, edges = np.histogram(np.maximum(positive, low), _BINS, (low, max(high, low + 1e-6)))
    largest = np.sort(log_w)[::-1][: tail_size(len(log_w))]
    with np.errstate(divide="ignore"):
        smoothed = np.log(np.sort(evidence.weights)[::-1][: len(largest)])
    return {
        "edges": rounded(edges, _DIGITS),
        "counts": counts.tolist(),
        "tail": rounded(largest, _DIGITS),
        "smoothed": rounded(smoothed, _DIGITS),
        "samples": len(log_w),
    }


def curves_data(curves: tuple[SeedCurve, ...]) -> list[dict[str, Any]]:
    """The ELBO of every seed of a run."""
    found = []
    for curve in curves:
        kept = evenly(len(curve.neg_elbo), _MOST_ITERATIONS)
        found.append(
            {
                "label": curve.label,
                "evaluations": rounded(curve.evaluations[kept], 12),
                "neg_elbo": rounded(curve.neg_elbo[kept], _DIGITS),
            }
        )
    return found


def evenly(n: int, most: int) -> np.ndarray:
    """At most so many of the numbers below ``n``, the first and the last among them."""
    return np.unique(np.round(np.linspace(0, n - 1, min(n, most))).astype(int))


def rounded(values: np.ndarray, digits: int) -> list[float]:
    """Numbers with so many significant digits."""
    return [float(f"{v:.{digits}g}") for v in np.asarray(values, float)]
