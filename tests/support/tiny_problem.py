"""A test problem that compiles and runs in no time."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from natmix import JaxTarget
from natmix.experiments.problems.base import InitialRegion, Problem


class Bumps(eqx.Module):
    """Two Gaussians of equal weight; their centres are data."""

    centres: jax.Array
    traces: list = eqx.field(static=True)

    def __call__(self, x):
        self.traces.append(1)
        return jax.nn.logsumexp(-0.5 * jnp.sum((x - self.centres) ** 2, axis=1))


class Traces(list):
    """Hashable, so that it may be static."""

    def __hash__(self):  # type: ignore[override]
        return id(self)

    def __eq__(self, other):
        return self is other


TRACES = Traces()
"""Grows whenever a target is traced."""


def tiny(seed=0, dtype="float64", name="tiny", centres=None):
    centres = 3 * np.random.default_rng(seed).normal(size=(2, 2)) if centres is None else centres
    target = JaxTarget(Bumps(jnp.asarray(centres, dtype), TRACES), 2)
    return Problem(
        name=name,
        title="two bumps",
        target=target,
        reference=target,
        start=InitialRegion.build(2, 0.0, 3.0, 9.0),
        log_evidence=float(np.log(4 * np.pi)),
        secondary={"first_mean": lambda mixture, key: float(mixture.mean()[0])},
    )


SMALL = {
    "sample_selector": {"desired_samples": 20},
    "component_adaptation": {"add_iters": 5, "del_iters": 6, "database_size": 500, "prior_candidates": 10},
}
"""Overrides that make little work and let components come and go."""


class Spot(eqx.Module):
    """NaN far from the origin; how far is data."""

    radius: jax.Array

    def __call__(self, x):
        return jnp.where(jnp.sum(x**2) < self.radius**2, -0.5 * jnp.sum(x**2), jnp.nan)


def spot(radius):
    """A problem whose runs diverge once they leave the radius."""
    target = JaxTarget(Spot(jnp.asarray(radius, "float64")), 2)
    return dataclasses.replace(tiny(), target=target, reference=target)
