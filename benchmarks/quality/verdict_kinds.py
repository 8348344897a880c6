"""The kinds of cases of `verdict_scores.py`: a random target, a budget and a start for every seed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from known_targets import (
    Banana,
    Cauchies,
    Form,
    Funnel,
    Improper,
    Mapped,
    Normal,
    Skewed,
    Student,
    Truncated,
    Truth,
    WrongGradient,
    close_mixture,
    mapped,
)
from random_mixtures import KnownMixture

from natmix import JaxTarget

Rng = np.random.Generator
BUDGETS = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, None)
SHORT = (2_000, 3_000, 5_000)


class Case(NamedTuple):
    """A target with its truth, and arguments of `natmix.fit`.

    Attributes:
        target: for `natmix.fit`.
        truth: what is known of it.
        options: ``max_evaluations``, ``start``.
        detail: what kind of target, where there are several.
    """

    target: JaxTarget
    truth: Truth
    options: dict[str, Any]
    detail: str = ""


def _array(value: Any) -> Any:
    return jnp.asarray(value, float)


def _known(density: Mapped) -> Truth:
    improper = isinstance(density.form, Improper)
    return Truth(density, density.mean.size, float("nan") if improper else float(density.offset))


def _gaussian(rng: Rng, dim: int) -> Truth:
    return _known(mapped(rng, Normal(), dim, condition=3.0))


def _correlated(rng: Rng, dim: int) -> Truth:
    return _known(mapped(rng, Normal(), dim, condition=10 ** rng.uniform(1, 2.5)))


def _student(rng: Rng, dim: int) -> Truth:
    return _known(mapped(rng, Student(_array(2 * 15 ** rng.uniform())), dim))


def _cauchy(rng: Rng, dim: int) -> Truth:
    form: Form = Student(_array(1.0)) if rng.uniform() < 0.5 else Cauchies()
    return _known(mapped(rng, form, dim, condition=3.0))


def _skewed(rng: Rng, dim: int) -> Truth:
    return _known(mapped(rng, Skewed(_array(rng.uniform(-6, 6, dim))), dim))


def _banana(rng: Rng, dim: int) -> Truth:
    return _known(mapped(rng, Banana(_array(rng.uniform(0.3, 1.5)), _array(rng.uniform(0.3, 1))), dim, 2.0))


def _funnel(rng: Rng, dim: int) -> Truth:
    return _known(mapped(rng, Funnel(_array(rng.uniform(0.5, 3))), dim, condition=1.0))


def _few_modes(rng: Rng, dim: int) -> Truth:
    modes = int(rng.integers(2, 5))
    return Truth(close_mixture(rng, dim, modes, 3 * 5 ** rng.uniform(), 2.0), dim, 0.0)


def _many_modes(rng: Rng, dim: int) -> Truth:
    modes = int(rng.integers(6, 17))
    return Truth(close_mixture(rng, dim, modes, 4 * 5 ** rng.uniform(), 1.5), dim, 0.0)


def _narrow(rng: Rng, dim: int) -> Truth:
    """A mode of half to four fifths of the mass, much narrower than the other one."""
    share, width, distance = rng.uniform(0.5, 0.8), 0.02 * 15 ** rng.uniform(), rng.uniform(2, 8)
    direction = rng.normal(size=dim)
    means = np.stack([np.zeros(dim), distance * direction / np.linalg.norm(direction)])
    factors = np.stack([np.eye(dim), width * np.eye(dim)])
    return Truth(KnownMixture(np.array([1 - share, share]), means, factors), dim, 0.0)


def _improper(rng: Rng, dim: int) -> Truth:
    power = 0.0 if rng.uniform() < 0.3 else rng.uniform(0.1, 0.5)
    return _known(mapped(rng, Improper(_array(power)), dim, condition=2.0))


def _bounded(rng: Rng, dim: int) -> Truth:
    """The start is in the support: the edge lies below the mean's distance from the origin."""
    density = mapped(rng, Truncated(_array(0.0)), dim, condition=2.0)
    origin = -(np.asarray(density.whitening) @ np.asarray(density.mean))[0]
    edge = min(rng.uniform(-3, 1), float(origin) - 0.1)
    return _known(Mapped(Truncated(_array(edge)), density.mean, density.whitening, density.offset))


def _offset(rng: Rng, dim: int) -> Truth:
    """A Gaussian whose log evidence is 1e6 to 1e20, or minus that."""
    size = np.float32(rng.choice([-1, 1]) * 10 ** rng.uniform(6, 20))
    return _known(mapped(rng, Normal(), dim, condition=3.0, offset=float(size)))


SIMPLE = {
    "gaussian": _gaussian,
    "correlated": _correlated,
    "student": _student,
    "skewed": _skewed,
    "banana": _banana,
    "few modes": _few_modes,
}
"""Targets of the kinds that vary the budget, the start or the gradients."""


def _target(truth: Truth, values_only: bool = False) -> JaxTarget:
    density = truth.density.density() if isinstance(truth.density, KnownMixture) else truth.density
    return JaxTarget(density, truth.dim, values_only=values_only)


def _budget(rng: Rng, budgets: tuple[int | None, ...] = BUDGETS) -> dict[str, Any]:
    return {"max_evaluations": budgets[int(rng.integers(len(budgets)))]}


def _plain(draw: Callable[[Rng, int], Truth], *dims: int) -> Callable[[Rng, int], Case]:
    """Default start and any budget; the dimension follows from the seed."""

    def kind(rng: Rng, seed: int) -> Case:
        truth = draw(rng, dims[seed // 2 % len(dims)])
        return Case(_target(truth), truth, _budget(rng))

    return kind


def _any_simple(rng: Rng, seed: int, dims: tuple[int, ...]) -> tuple[str, Truth]:
    name = list(SIMPLE)[int(rng.integers(len(SIMPLE)))]
    return name, SIMPLE[name](rng, dims[seed // 2 % len(dims)])


def _gradient_free(rng: Rng, seed: int) -> Case:
    name, truth = _any_simple(rng, seed, (2, 3, 5))
    return Case(_target(truth, values_only=True), truth, _budget(rng), name)


def _short_budget(rng: Rng, seed: int) -> Case:
    name, truth = _any_simple(rng, seed, (2, 5))
    return Case(_target(truth), truth, _budget(rng, SHORT), name)


def _started(start: str) -> Callable[[Rng, int], Case]:
    def kind(rng: Rng, seed: int) -> Case:
        name, truth = _any_simple(rng, seed, (2, 5))
        scale = {"init_scale": float(10 ** rng.uniform(-1, 1))} if start == "region" else {}
        return Case(_target(truth), truth, {**_budget(rng), "start": start, **scale}, name)

    return kind


def _wrong_gradient(rng: Rng, seed: int) -> Case:
    """One coordinate of the gradient is 5 to 10% too large or too small."""
    dim = (2, 5)[seed // 2 % 2]
    truth = _gaussian(rng, dim)
    assert isinstance(truth.density, Mapped)
    factors = np.ones(dim)
    factors[int(rng.integers(dim))] += rng.choice([-1, 1]) * rng.uniform(0.05, 0.1)
    target = JaxTarget(WrongGradient(truth.density, _array(factors)), dim, returns_gradient=True)
    return Case(target, truth, _budget(rng))


KINDS: dict[str, Callable[[Rng, int], Case]] = {
    "gaussian": _plain(_gaussian, 2, 5, 10),
    "correlated": _plain(_correlated, 2, 5, 10),
    "student": _plain(_student, 2, 5, 10),
    "skewed": _plain(_skewed, 2, 5),
    "banana": _plain(_banana, 2, 5),
    "few modes": _plain(_few_modes, 2, 5),
    "many modes": _plain(_many_modes, 2, 5),
    "narrow mode": _plain(_narrow, 2, 3, 5),
    "funnel": _plain(_funnel, 2, 5, 10),
    "cauchy": _plain(_cauchy, 2, 5),
    "bounded": _plain(_bounded, 2, 5),
    "improper": _plain(_improper, 2, 5),
    "offset": _plain(_offset, 2, 5),
    "wrong gradient": _wrong_gradient,
    "gradient-free": _gradient_free,
    "short budget": _short_budget,
    "start region": _started("region"),
    "start pathfinder": _started("pathfinder"),
    "start tempered": _started("tempered"),
}


def draw_case(kind: str, seed: int) -> Case:
    """The case of a kind with this seed."""
    return KINDS[kind](np.random.default_rng([list(KINDS).index(kind), seed]), seed)
