"""The weights of the components over time, as stacked ribbons."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.plot.style import COMPONENT, DPI, component_colours, explain, figure_of, name_axes, pyplot, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from natmix.experiments.runs import WeightHistory

_OWN = 9
_WORTHY = 0.015
_COHORTS = 5
_VISIBLE = 0.0005  # less is printed as 0.0%
_TINTS = (0.15, 0.85)


class Ribbons(NamedTuple):
    """Weights over time of single components and of cohorts of small ones.

    Attributes:
        iterations: [T].
        weights: [T, G]; rows sum to one.
        labels: what the G ribbons are.
        own: how many of them, the first ones, are single components.
    """

    iterations: np.ndarray
    weights: np.ndarray
    labels: list[str]
    own: int


def plot_component_weights(
    history: "WeightHistory",
    *,
    own: int = _OWN,
    min_share: float = _WORTHY,
    cohorts: int = _COHORTS,
    ax: "Axes | None" = None,
) -> "Axes":
    """A ribbon per component, as wide as its weight; small ones of similar age share one, in orange.

    Args:
        history: ids and weights of the components at every checkpoint.
        own: at most so many components have a separate ribbon, those with the largest mean weight.
        min_share: the smallest mean weight, over all checkpoints, of a component with a separate ribbon.
        cohorts: the others are grouped by birth into at most so many ribbons.
        ax: where to draw; a new figure if left out.

    Returns:
        The axes.
    """
    ribbons = group_weights(history, own, min_share, cohorts)
    if ax is None:
        _, ax = pyplot().subplots(figsize=(8, 4.4), dpi=DPI, layout="constrained")
    over, weights = ribbons.iterations, ribbons.weights
    if len(over) == 1:  # a stack needs a width
        over, weights = np.append(over, over + 1), np.repeat(weights, 2, axis=0)
    ax.stackplot(
        over,
        weights.T,
        labels=ribbons.labels,
        colors=_colours(ribbons),
        edgecolor="white",
        linewidth=0.3,
    )
    ax.set(xlim=(over[0], over[-1]), ylim=(0, 1), xlabel="iteration", ylabel="weight")
    ax.yaxis.set_major_formatter("{x:.0%}")
    handles, labels = ax.get_legend_handles_labels()
    left = [
        k for k in reversed(range(len(labels))) if weights[-1, k] >= _VISIBLE
    ]  # in the order of the stack
    explain(
        ax,
        "weight at the end" + (f", {_VISIBLE:.2%} or more" if len(left) < len(labels) else ""),
        handles=[handles[k] for k in left],
        labels=[labels[k] for k in left],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        alignment="left",
    )
    name_axes(ax, "Weights of the components")
    tidy(ax)
    return ax


def group_weights(history: "WeightHistory", own: int, min_share: float, cohorts: int) -> Ribbons:
    """Sum the ragged history into ribbons: single components by id, then cohorts by birth."""
    T = len(history.iterations)
    if T == 0:
        raise ValueError("The history of the weights is empty; there is nothing to plot.")
    if own < 0 or cohorts < 1:
        raise ValueError(f"own must not be negative and cohorts at least 1, got {own} and {cohorts}.")
    checkpoint = np.repeat(np.arange(T), np.diff(history.offsets))
    ids, first, index = np.unique(history.ids, return_index=True, return_inverse=True)
    share = np.bincount(index, history.weights, len(ids)) / T
    born = np.asarray(history.iterations)[checkpoint[first]]
    group, names, single = _groups(ids, share, born, own, min_share, cohorts)
    weights = np.bincount(checkpoint * len(names) + group[index], history.weights, T * len(names))
    table = weights.reshape(T, len(names))
    labels = [f"{w:.1%}  {name}" for w, name in zip(table[-1], names, strict=True)]
    return Ribbons(np.asarray(history.iterations), table, labels, single)


def _groups(
    ids: np.ndarray, share: np.ndarray, born: np.ndarray, own: int, min_share: float, cohorts: int
) -> tuple[np.ndarray, list[str], int]:
    """The ribbon of every id, the names of the ribbons, and how many belong to single components."""
    if len(ids) <= own:
        min_share = 0.0
    heaviest = np.argsort(-share, kind="stable")[:own]
    alone = np.sort(heaviest[share[heaviest] >= min_share])
    rest = np.setdiff1d(np.arange(len(ids)), alone)
    group = np.empty(len(ids), int)
    group[alone] = np.arange(len(alone))
    names = [f"component {ids[k]}" for k in alone]
    for k, cohort in enumerate(_cohorts(rest, born, cohorts)):
        group[cohort] = len(alone) + k
        names.append(_name(ids[cohort], born[cohort]))
    return group, names, len(alone)


def _cohorts(components: np.ndarray, born: np.ndarray, most: int) -> list[np.ndarray]:
    """Components in cohorts of similar size that do not separate those added at the same checkpoint."""
    times, count = np.unique(born[components], return_counts=True)
    middle = (np.cumsum(count) - count / 2) / max(int(count.sum()), 1)
    cohort = np.minimum((middle * most).astype(int), most - 1)
    of_component = cohort[np.searchsorted(times, born[components])]
    return [components[of_component == c] for c in np.unique(of_component)]


def _name(ids: np.ndarray, born: np.ndarray) -> str:
    if len(ids) == 1:
        return f"component {ids[0]}"
    first, last = born.min(), born.max()
    since = f"iteration {first}" if first == last else f"iterations {first}–{last}"
    return f"{len(born)} others, since {since}"


def _colours(ribbons: Ribbons) -> Any:
    """Distinct colours for components; tints of orange, lighter the later they were added, for cohorts."""
    from matplotlib.colors import to_rgb

    cohorts = len(ribbons.labels) - ribbons.own
    white = np.linspace(*_TINTS, max(cohorts, 1))[:cohorts, None]
    tints = (1 - white) * np.array(to_rgb(COMPONENT)) + white
    return [tuple(colour) for colour in (*component_colours(ribbons.own), *tints)]


def _draw(subject: Subject) -> Drawing:
    return Drawing(figure_of(plot_component_weights(subject.seed.weights)))


COMPONENT_WEIGHTS = RunFigure("component_weights", _draw)
