"""The contract of a figure of a run."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax.numpy as jnp

from natmix.experiments.problems import Problem, load
from natmix.experiments.runs import Run, SeedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


@dataclasses.dataclass(frozen=True)
class RunFigure:
    """A figure that ``natmix plot`` draws of a run.

    Attributes:
        name: of its file.
        draw: from a run; raises ValueError, FileNotFoundError or ImportError, in a sentence, if it cannot.
        problems: those that have it; empty for all.
    """

    name: str
    draw: Callable[[Subject], Drawing]
    problems: tuple[str, ...] = ()
