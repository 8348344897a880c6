"""Poses of the humanoid TALOS as stick figures."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.mixture import Mixture
from natmix.plot.style import DPI, FRAME, GRID, INK, KNOWN, component_colours, figure_of, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpl_toolkits.mplot3d.axes3d import Axes3D  # type: ignore[import-untyped]

    from natmix.experiments.problems.talos import Talos

_COLUMNS = 3
_VISIBLE = 0.0005  # a weight that is printed as 0.0% has no panel
_GROUND, _GOALS, _SAMPLES, _MEAN = 0, 1, 2, 3  # layers, from the back
_BOX = ((-0.55, 0.55), (-0.7, 0.6), (-0.08, 1.4))
_PLATE = ((-0.4, 0.4), (-0.5, 0.6))
_SQUARE = 0.2
_PANEL = (2.9, 3.1)  # inches
_SOLE = np.array([[0.11, 0.06], [0.11, -0.06], [-0.1, -0.06], [-0.1, 0.06]])
"""Corners of a sole in its own frame, roughly, in metres."""


def plot_talos(
    mixture: Mixture,
    robot: "Talos",
    *,
    components: int = 6,
    samples: int = 12,
    seed: int = 0,
    axes: "Sequence[Axes3D] | None" = None,
) -> "list[Axes3D]":
    """A panel for each of the heaviest components: its mean thick, its samples thin.

    Grey are the places where soles and left hand should be, and squares of 20 cm on the ground.

    Args:
        mixture: over the poses.
        robot: the kinematics, ``problem.target.fn``.
        components: how many to show, of those with at least 0.05% of the weight.
        samples: how many poses of each to draw beside its mean.
        seed: of the samples.
        axes: where to draw, 3-D axes, one for each component shown; a new figure if left out.

    Returns:
        The axes.
    """
    if components < 1 or samples < 0:
        raise ValueError(f"Show at least one component, got components={components}, samples={samples}.")
    weights = np.asarray(mixture.weights, dtype=float)
    rows = np.argsort(-weights, kind="stable")[:components]
    rows = rows[weights[rows] >= min(_VISIBLE, weights.max())]
    panels = list(axes) if axes is not None else _panels(len(rows))
    if len(panels) != len(rows):
        raise ValueError(f"There are {len(rows)} components to show, but {len(panels)} axes to draw on.")
    colours = component_colours(len(rows))
    lines, soles = _shapes(robot, _poses(mixture, rows, samples, seed))
    for k, ax in enumerate(panels):
        _draw_ground(ax)
        _draw_goals(ax)
        _draw_figures(ax, lines[k, 1:], soles[k, 1:], (*colours[k], 0.35), 0.8, _SAMPLES)
        _draw_figures(ax, lines[k, :1], soles[k, :1], (*colours[k], 1.0), 2.4, _MEAN)
        _frame(ax)
        ax.text2D(0.08, 0.93, f"{weights[rows[k]]:.1%}", transform=ax.transAxes, color=INK, fontsize=9)
    if axes is None:
        _explain(figure_of(panels[0]), weights, rows)
    return panels


def _panels(number: int) -> "list[Axes3D]":
    columns = min(_COLUMNS, number)
    rows = math.ceil(number / columns)
    width, height = _PANEL[0] * columns, _PANEL[1] * rows + 0.9
    figure = pyplot().figure(figsize=(max(width, 5.8), height), dpi=DPI)
    figure.subplots_adjust(0.0, 0.35 / height, 1.0, 1 - 0.45 / height, wspace=0, hspace=0)
    return [figure.add_subplot(rows, columns, i + 1, projection="3d") for i in range(number)]


def _poses(mixture: Mixture, rows: np.ndarray, samples: int, seed: int) -> Float[Array, "K {samples}+1 D"]:
    """The means of these components, each followed by samples of it."""
    chosen = mixture.components.take(jnp.asarray(rows))
    noise = jax.random.normal(jax.random.key(seed), (len(rows), samples, mixture.dim), mixture.dtype)
    return jnp.concatenate([chosen.mean[:, None], chosen.colour(noise)], axis=1)


def _shapes(robot: "Talos", x: Float[Array, "*N D"]) -> tuple[np.ndarray, np.ndarray]:
    """Lines [..., S, 2, 3] and corners of the two soles [..., 2, 4, 3] of poses."""
    draw = eqx.filter_jit(lambda robot, x: (robot.skeleton(x), robot.poses(x)))
    lines, (rotation, position) = draw(robot, x)
    turned = np.einsum("...ij,cj->...ci", np.asarray(rotation, dtype=float)[..., :2, :, :2], _SOLE)
    return np.asarray(lines, dtype=float), turned + np.asarray(position, dtype=float)[..., :2, None, :]


def _draw_figures(
    ax: Any, lines: np.ndarray, soles: np.ndarray, colour: tuple[float, ...], width: float, layer: int
) -> None:
    from mpl_toolkits.mplot3d.art3d import Line3DCollection  # type: ignore[import-untyped]

    if not len(lines):
        return
    sticks = Line3DCollection(lines.reshape(-1, 2, 3), colors=[colour], linewidths=width, zorder=layer)
    sticks.set(capstyle="round")
    ax.add_collection3d(sticks)
    outlines = np.concatenate([soles, soles[..., :1, :]], axis=-2).reshape(-1, 5, 3)
    ax.add_collection3d(Line3DCollection(outlines, colors=[colour], linewidths=0.6 * width, zorder=layer))
    head = lines[:, -1, 1]
    ax.scatter(*head.T, s=26 * width, color=[colour], linewidths=0, zorder=layer, depthshade=False)


def _draw_goals(ax: Any) -> None:
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    from natmix.experiments.problems.talos import GOALS

    *feet, hand = np.asarray(GOALS)
    soles = [np.column_stack([foot[:2] + _SOLE, np.full(4, foot[2])]) for foot in feet]
    ax.add_collection3d(
        Poly3DCollection(soles, facecolors=FRAME, edgecolors=KNOWN, linewidths=0.8, zorder=_GOALS)
    )
    ax.plot(
        *np.column_stack([hand * [1, 1, 0], hand]), color=KNOWN, linewidth=0.7, linestyle=":", zorder=_GOALS
    )
    ax.scatter(*hand[:, None], s=110, facecolors="none", edgecolors=KNOWN, linewidths=1.6, zorder=_MEAN + 1)


def _draw_ground(ax: Any) -> None:
    from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

    (left, right), (near, far) = _PLATE
    corners = np.array([[left, near, 0], [right, near, 0], [right, far, 0], [left, far, 0]])
    ax.add_collection3d(Poly3DCollection([corners], facecolors="#f6f8fa", edgecolors=FRAME, zorder=_GROUND))
    across = [[(x, near, 0), (x, far, 0)] for x in np.arange(left + _SQUARE, right, _SQUARE)]
    along = [[(left, y, 0), (right, y, 0)] for y in np.arange(near + _SQUARE, far, _SQUARE)]
    ax.add_collection3d(Line3DCollection(across + along, colors=GRID, linewidths=0.7, zorder=_GROUND))


def _frame(ax: Any) -> None:
    ax.computed_zorder = False
    ax.set(**dict(zip(("xlim", "ylim", "zlim"), _BOX, strict=True)))
    ax.set_box_aspect(np.ptp(_BOX, axis=1), zoom=1.32)
    ax.view_init(elev=14, azim=28)
    ax.set_axis_off()
    ax.patch.set_alpha(0)  # panels may overlap a little


def _explain(figure: "Figure", weights: np.ndarray, rows: np.ndarray) -> None:
    count = "heaviest component" if len(rows) == 1 else f"{len(rows)} heaviest components"
    title = f"TALOS: the {count} of {len(weights)}, {weights[rows].sum():.0%} of the weight"
    figure.text(0.02, 1 - 0.12 / figure.get_figheight(), title, color=INK, fontsize=10, va="top")
    note = "thick: mean, thin: samples; grey: where soles and left hand should be; squares of 20 cm"
    figure.text(0.02, 0.12 / figure.get_figheight(), note, color=KNOWN, fontsize=8)


def coordinate_labels() -> list[str]:
    """Joints and base, with their units."""
    from natmix.experiments.problems.talos import JOINTS

    joints = [f"{name.removesuffix('_joint').replace('_', ' ')} [rad]" for name in JOINTS]
    return [*joints, "base x [m]", "base y [m]", "base z [m]", "roll [rad]", "pitch [rad]", "yaw [rad]"]


def _draw(subject: Subject) -> Drawing:
    robot: Any = subject.problem.target.fn
    return Drawing(figure_of(plot_talos(subject.seed.mixture, robot)[0]))


POSES = RunFigure("poses", _draw, problems=("talos",))
