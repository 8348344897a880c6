"""The problems by name."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from natmix.checks import float_type
from natmix.experiments.problems.base import Problem
from natmix.experiments.problems.gmm import gmm
from natmix.experiments.problems.logistic_regression import (
    logistic_regression,
    logistic_regression_held_out,
    logistic_regression_minibatch,
)
from natmix.experiments.problems.planar_robot import planar_robot
from natmix.experiments.problems.stm import stm
from natmix.experiments.problems.wine import wine
from natmix.registry import registry_of
from natmix.text.suggestions import hint

PAPER = (
    "breast_cancer",
    "breast_cancer_mb",
    "german_credit",
    "german_credit_mb",
    "planar_robot_4",
    "gmm20",
    "gmm100",
    "stm20",
    "stm300",
    "wine",
    "talos",
)
"""The eleven problems of the paper's main table, in its order."""

_GIVEN = ("name", "title", "seed", "dtype")
_ANY_DIMENSION = re.compile(r"(gmm|stm)([1-9][0-9]{0,4})")


@dataclass(frozen=True)
class Entry:
    """A problem that is not loaded: nothing here needs its data.

    Attributes:
        name: as in ``load(name)``.
        dim: D.
        title: in a few words.
        short: in fewer words.
    """

    name: str
    dim: int
    title: str
    build: Callable[..., Problem] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False, default_factory=dict)
    short: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """What ``load(name, option=...)`` takes."""
        return tuple(
            p for p in inspect.signature(self.build).parameters if p not in (*_GIVEN, *self.settings)
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The options whose value is a word."""
        parameters = inspect.signature(self.build).parameters
        return tuple(option for option in self.options if isinstance(parameters[option].default, str))


def words_of(name: str) -> tuple[str, ...]:
    """Options of a problem whose value is a word."""
    return _find(name).words


def load(name: str, seed: int = 0, dtype: Any = None, **options: Any) -> Problem:
    """A test problem.

    Args:
        name: one of `names`, or ``gmmD`` or ``stmD`` for any number of dimensions D.
        seed: of its random parts (the target of gmm and stm, the split of wine).
        dtype: float32 or float64; JAX's default if left out.
        options: of the problem, see ``catalogue()[name].options``.
    """
    entry = _find(name)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2**32 - 1, got {seed!r}.")
    kind = float_type(dtype)
    check_options(name, options)
    return entry.build(name=name, title=entry.title, seed=int(seed), dtype=kind, **entry.settings, **options)


def check_options(name: Any, options: Iterable[str]) -> None:
    """Raise unless there is a problem of this name, and it has these options."""
    known = _find(name).options
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(f"The problem {name} has no option {unknown[0]!r}. {hint(unknown[0], known)}")


def names() -> tuple[str, ...]:
    """The names of all problems, those of the paper first."""
    return tuple(_ENTRIES)


def catalogue() -> dict[str, Entry]:
    """The same with dimension, title and options."""
    return dict(_ENTRIES)


def _find(name: Any) -> Entry:
    if name in _ENTRIES:
        return _ENTRIES[name]
    random = _ANY_DIMENSION.fullmatch(name) if isinstance(name, str) else None
    if random is not None:
        return _random(random[1], int(random[2]))
    if isinstance(name, str) and re.fullmatch(r"(gmm|stm)\d*", name):
        raise ValueError(f"No test problem is called {name!r}. gmmD and stmD exist for D from 1 to 99999.")
    raise ValueError(f"No test problem is called {name!r}. {hint(name, _ENTRIES)}")


def _random(kind: str, dim: int) -> Entry:
    title, short, build = {
        "gmm": ("Gaussian mixture", "Gaussian mixture", gmm),
        "stm": ("mixture of Student-t distributions", "Student-t mixture", stm),
    }[kind]
    return Entry(f"{kind}{dim}", dim, f"{title} in {dim} dimensions", build, {"dim": dim}, short)


def _logistic(data: str, dim: int, title: str) -> tuple[Entry, Entry, Entry]:
    of = {"data": data}
    return (
        Entry(data, dim, f"logistic regression, {title}", logistic_regression, of, "logistic regression"),
        Entry(
            f"{data}_mb",
            dim,
            f"logistic regression, {title}, minibatches",
            logistic_regression_minibatch,
            of,
            "same, minibatches",
        ),
        Entry(
            f"{data}_testsplit",
            dim,
            f"logistic regression, {title}, with held-out rows",
            logistic_regression_held_out,
            of,
            "same, held-out rows",
        ),
    )


def _talos(name: str, title: str, seed: int, dtype: Any, *, centre_of_mass: str = "published") -> Problem:
    from natmix.experiments.problems.talos import talos

    return talos(seed, dtype, centre_of_mass=centre_of_mass)


_ALL = (
    *_logistic("breast_cancer", 31, "breast cancer"),
    *_logistic("german_credit", 25, "German credit"),
    Entry(
        "planar_robot_4", 10, "planar robot with four goals", planar_robot, {"goals": 4}, "arm, four goals"
    ),
    Entry("planar_robot_1", 10, "planar robot with one goal", planar_robot, {"goals": 1}, "arm, one goal"),
    *(_random("gmm", dim) for dim in (20, 100)),
    *(_random("stm", dim) for dim in (20, 300)),
    Entry("wine", 177, "Bayesian neural network, quality of white wine", wine, {}, "neural network"),
    Entry("talos", 34, "poses of the humanoid TALOS", _talos, {}, "humanoid robot"),
)
_ENTRIES = registry_of(
    "test problem", sorted(_ALL, key=lambda e: (*PAPER, e.name).index(e.name)), lambda entry: entry.name
)
