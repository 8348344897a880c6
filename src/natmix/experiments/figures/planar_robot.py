"""Configurations of a planar robot, drawn as it would stand."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.experiments.problems.planar_robot import joint_positions, mode_index
from natmix.mixture import Mixture
from natmix.plot.style import (
    DPI,
    INK,
    KNOWN,
    component_colours,
    explain,
    figure_of,
    name_axes,
    pyplot,
    shades,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAMPLES, _POSES, _PLACE = 1, 3, 4  # layers, from the back
_FAINTEST, _STRONGEST = 0.12, 0.7


class Families(NamedTuple):
    """Families of components with the same goal and side of bending, the heaviest first.

    Attributes:
        of: the family of every component [K].
        weights: of the families [F].
        heaviest: the heaviest component of every family [F].
        sizes: numbers of components [F].
    """

    of: Int[np.ndarray, " K"]
    weights: Float[np.ndarray, " F"]
    heaviest: Int[np.ndarray, " F"]
    sizes: Int[np.ndarray, " F"]


def plot_planar_robot(
    mixture: Mixture,
    goals: ArrayLike = (),
    *,
    samples: int = 400,
    seed: int = 0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Samples of the joint angles as thin robots in the colours of their components.

    Components with the same goal and side of bending have shades of one colour, heavier ones are more
    opaque. Thick robots are the means of the heaviest component of each such family.

    Args:
        mixture: over the joint angles of links of length 1, each relative to the link before it, in radians.
        goals: where the hand should be, [G, 2].
        samples: how many robots to draw.
        seed: of the samples.
        ax: where to draw; a new figure if left out.

    Returns:
        The axes.
    """
    if samples < 1:
        raise ValueError(f"Draw at least one robot, got samples={samples}.")
    places = np.asarray(goals, dtype=float).reshape(-1, 2)
    if ax is None:
        _, ax = pyplot().subplots(figsize=(6.6, 7.9), dpi=DPI, layout="constrained")
    kin = families(mixture, places)
    poses = _joints(mixture.means)[kin.heaviest]
    reach = _draw_samples(ax, mixture, kin, samples, seed)
    for k in range(len(poses))[::-1]:  # the heaviest on top, each with a white edge
        _draw_pose(ax, poses[k], component_colours(len(poses))[k])
    _draw_place(ax, places, max(reach, np.abs(poses).max(), np.abs(places).max(initial=0)))
    _explain(ax, kin, bool(len(places)))
    count = "one component" if mixture.num_components == 1 else f"{mixture.num_components:,} components"
    name_axes(ax, f"Planar robot: {samples} samples of {count}")
    return ax


def families(mixture: Mixture, goals: Float[np.ndarray, "G 2"]) -> Families:
    """Components by the goal nearest to the hand of their mean and the side to which that robot bends."""
    weights = np.asarray(mixture.weights, dtype=float)
    places = goals if len(goals) else np.zeros((1, 2))
    _, of = np.unique(np.asarray(mode_index(mixture.means, jnp.asarray(places))), return_inverse=True)
    total = np.bincount(of, weights)
    order = np.argsort(-total, kind="stable")
    of = np.argsort(order)[of]
    by_weight = np.argsort(-weights, kind="stable")
    _, first = np.unique(of[by_weight], return_index=True)
    return Families(of, total[order], by_weight[first], np.bincount(of))


def _joints(x: Any) -> Float[np.ndarray, "N joints 2"]:
    return np.asarray(joint_positions(jnp.asarray(x)), dtype=float)


def _draw_samples(ax: "Axes", mixture: Mixture, kin: Families, samples: int, seed: int) -> float:
    """Draw thin robots, and return how far they reach."""
    from matplotlib.collections import LineCollection

    x, rows = (np.asarray(a) for a in mixture.sample_with_components(samples, key=seed))
    weights = np.asarray(mixture.weights, dtype=float)
    opacity = _FAINTEST + (_STRONGEST - _FAINTEST) * weights / weights.max()
    colours = np.column_stack([shades(component_colours(len(kin.weights))[kin.of]), opacity])
    joints = _joints(x)
    lines = LineCollection(
        list(joints), colors=colours[rows], linewidths=0.7, zorder=_SAMPLES, label="samples"
    )
    lines.set(capstyle="round", joinstyle="round")
    ax.add_collection(lines)
    return float(np.abs(joints).max())


def _draw_pose(ax: "Axes", joints: np.ndarray, colour: np.ndarray) -> None:
    style: dict[str, Any] = {"marker": "o", "zorder": _POSES, "solid_joinstyle": "round"}
    ax.plot(*joints.T, color="white", linewidth=4, markersize=6, **style)
    ax.plot(*joints.T, color=colour, linewidth=2.2, markersize=4.2, **style)


def _draw_place(ax: "Axes", goals: np.ndarray, reach: float) -> None:
    ax.scatter([0], [0], s=80, color=INK, marker="s", linewidths=0, zorder=_PLACE)
    ring: dict[str, Any] = {"s": 200, "facecolors": "none", "zorder": _PLACE}
    ax.scatter(goals[:, 0], goals[:, 1], edgecolors="white", linewidths=3.4, **ring)
    ax.scatter(goals[:, 0], goals[:, 1], edgecolors=KNOWN, linewidths=1.7, **ring)
    limits = (-1.08 * reach, 1.08 * reach)
    ax.set(xlim=limits, ylim=limits, aspect="equal", xlabel="link lengths", ylabel="link lengths")
    tidy(ax)


def _explain(ax: "Axes", kin: Families, goals: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [], [], color=colour, linewidth=2.2, marker="o", markersize=4.2, label=f"{weight:.1%} ({size})"
        )
        for weight, size, colour in zip(
            kin.weights, kin.sizes, component_colours(len(kin.sizes)), strict=True
        )
    ]
    if goals:
        handles.append(
            Line2D([], [], color=KNOWN, linestyle="", marker="o", mfc="none", mew=1.7, ms=9, label="goal")
        )
    explain(
        ax,
        "weight (and number) of the components with the same goal and side of bending",
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.08),
        ncols=5,
    )


def _draw(subject: Subject) -> Drawing:
    target: Any = subject.problem.target.fn
    return Drawing(figure_of(plot_planar_robot(subject.seed.mixture, target.goals)))


CONFIGURATIONS = RunFigure("configurations", _draw, problems=("planar_robot_1", "planar_robot_4"))
