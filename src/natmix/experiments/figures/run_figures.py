"""Which figures a run has, and how each is drawn from it."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.experiments.figures.component_weights import plot_component_weights
from natmix.experiments.figures.learning_curves import plot_comparison
from natmix.experiments.figures.planar_robot import plot_planar_robot
from natmix.experiments.figures.talos import plot_talos
from natmix.experiments.problems import Problem, load
from natmix.experiments.runs import Run, SeedRun
from natmix.plot.component_events import plot_component_events
from natmix.plot.marginals import plot_marginals
from natmix.plot.style import figure_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAMPLES = 100_000


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a figure is drawn from: a run, and the seed whose mixture it shows."""

    run: Run
    seed: SeedRun

    @functools.cached_property
    def problem(self) -> Problem:
        """The problem as this seed saw it."""
        config = self.run.config
        options = config["problem"].get("options", {})
        return load(self.run.problem, seed=self.seed.seed, dtype=jnp.dtype(config["dtype"]), **options)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure, a note about it, and whether it shows all seeds."""

    figure: "Figure"
    note: str = ""
    of_all_seeds: bool = False


Draw = Callable[[Subject], Drawing]


def figures_of(problem: str) -> Mapping[str, Draw]:
    """The figures of a run on this problem: what to call them and how to draw them."""
    return {**_EVERY, **_OWN.get(problem, {})}


def _learning_curves(subject: Subject) -> Drawing:
    return Drawing(plot_comparison([subject.run]), of_all_seeds=True)


def _component_weights(subject: Subject) -> Drawing:
    return Drawing(figure_of(plot_component_weights(subject.seed.weights)))


def _component_events(subject: Subject) -> Drawing:
    return Drawing(figure_of(plot_component_events(subject.seed.trace)[0]))


def _marginals(subject: Subject) -> Drawing:
    mixture = subject.seed.mixture
    labels = _COORDINATES.get(subject.run.problem, lambda: None)()
    source, samples, note = _target_samples(subject)
    panels = plot_marginals(mixture, samples, source=source, labels=labels)
    return Drawing(figure_of(panels[0]), note)


def _planar_robot(subject: Subject) -> Drawing:
    target: Any = subject.problem.target.fn
    return Drawing(figure_of(plot_planar_robot(subject.seed.mixture, target.goals)))


def _talos(subject: Subject) -> Drawing:
    robot: Any = subject.problem.target.fn
    return Drawing(figure_of(plot_talos(subject.seed.mixture, robot)[0]))


def _target_samples(subject: Subject) -> tuple[str, Float[np.ndarray, "N D"] | None, str]:
    """The source of the target's samples, the samples if there are any, and why not if they are missing."""
    from natmix.experiments.references import load_for

    try:
        problem = subject.problem
        if problem.sample is not None:
            x = problem.sample(_SAMPLES, key=jax.random.key(subject.seed.seed))
            return f"target ({_SAMPLES:,} exact samples)", np.asarray(x), ""
        reference = load_for(problem)
    except (FileNotFoundError, ImportError) as error:
        return "", None, f"the fit alone: {error}"
    if reference is None:
        return "", None, ""
    return f"target ({len(reference.samples):,} reference samples)", reference.samples, ""


def _talos_coordinates() -> Sequence[str]:
    from natmix.experiments.problems.talos import JOINTS

    joints = [f"{name.removesuffix('_joint').replace('_', ' ')} [rad]" for name in JOINTS]
    return [*joints, "base x [m]", "base y [m]", "base z [m]", "roll [rad]", "pitch [rad]", "yaw [rad]"]


_EVERY: Mapping[str, Draw] = {
    "learning_curves": _learning_curves,
    "component_weights": _component_weights,
    "component_events": _component_events,
    "marginals": _marginals,
}
_OWN: Mapping[str, Mapping[str, Draw]] = {
    "planar_robot_1": {"configurations": _planar_robot},
    "planar_robot_4": {"configurations": _planar_robot},
    "talos": {"poses": _talos},
}
_COORDINATES: Mapping[str, Callable[[], Sequence[str]]] = {"talos": _talos_coordinates}
