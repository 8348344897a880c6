"""A planar robot with ten links of length 1 whose end should reach one of the goals.

log p(x) = log N(x; 0, diag(1, 0.2^2, ..., 0.2^2)) + max_g log N(end(x); g, 0.01^2 I) of the joint angles x,
each relative to the link before.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.array_types import PRNGKey
from natmix.experiments.problems import secondary
from natmix.experiments.problems.base import InitialRegion, Problem, SecondaryMetric
from natmix.experiments.problems.block_size import block_size
from natmix.kernels.linalg import einsum
from natmix.mixture import Mixture
from natmix.targets import JaxTarget

LINKS = 10
PRIOR_STD = (1.0,) + 9 * (0.2,)
GOAL_STD = 0.01
GOALS = {1: ((7.0, 0.0),), 4: ((7.0, 0.0), (-7.0, 0.0), (0.0, 7.0), (0.0, -7.0))}

SMALLEST_WAY = 1e-3
"""The weight from which a mode counts as found; each has at least 0.9% of the target."""

LOG_EVIDENCE = {4: (-10.613, 0.004), 1: (-11.681, 0.004)}
"""With standard errors, by the acceptance rate of exact rejection sampling: ``natmix references``."""


class PlanarRobot(eqx.Module):
    """The log density of joint angles [N, 10].

    Attributes:
        goals: any of which the end may reach.
    """

    goals: Float[Array, "G 2"]

    def __call__(self, x: Float[Array, "N 10"]) -> Float[Array, " N"]:
        off = (end_position(x)[:, None] - self.goals) / GOAL_STD
        log_goal = jnp.max(-0.5 * jnp.sum(off**2, axis=2), axis=1)
        log_prior = -0.5 * jnp.sum((x / jnp.asarray(PRIOR_STD, x.dtype)) ** 2, axis=1)
        return log_goal + log_prior - _LOG_CONSTANT


def planar_robot(name: str, title: str, seed: int, dtype: Any, *, goals: int) -> Problem:
    """The robot with so many goals."""
    fn = PlanarRobot(jnp.asarray(GOALS[goals], dtype))
    target = JaxTarget(fn=fn, dim=LINKS, batched=True, batch_size=block_size(cpu=512, accelerator=16384))
    variance = (0.0625,) + 9 * (0.0025,)
    start = InitialRegion.build(LINKS, mean=0, mean_scale=PRIOR_STD, variance=variance)
    value, error = LOG_EVIDENCE[goals]
    return Problem(
        name,
        title,
        target,
        target,
        start,
        log_evidence=value,
        log_evidence_se=error,
        secondary={"mmd": secondary.mmd(name), "detected_modes": _found_ways(fn.goals)},
    )


def mode_index(x: Float[Array, "N L"], goals: Float[Array, "G 2"]) -> Int[Array, " N"]:
    """2 g, or 2 g + 1 if the robot bends to the left: g is the goal nearest to its hand.

    The side is that of the line from base to hand on which the centre of the joints lies.
    """
    joints = joint_positions(x)
    hand, centre = joints[:, -1], jnp.mean(joints, axis=1)
    goal = jnp.argmin(jnp.sum((hand[:, None] - goals) ** 2, axis=-1), axis=1)
    return 2 * goal + (hand[:, 0] * centre[:, 1] > hand[:, 1] * centre[:, 0])


def _found_ways(goals: Float[Array, "G 2"]) -> SecondaryMetric:
    """How many of the modes, two for each goal, have components with enough weight together."""

    def measure(mixture: Mixture, key: PRNGKey) -> float:
        mode = mode_index(mixture.means, goals)
        total = jnp.zeros(2 * len(goals), mixture.dtype).at[mode].add(mixture.weights)
        return float(jnp.sum(total >= SMALLEST_WAY))

    return measure


def end_position(x: Float[Array, "*N L"]) -> Float[Array, "*N 2"]:
    """Where the last link ends; the robot stands in the origin and angles are counted from the first axis."""
    return jnp.sum(_links(x), axis=-2)


def joint_positions(x: Float[Array, "*N L"]) -> Float[Array, "*N L+1 2"]:
    """The origin and the ends of all links, for pictures."""
    ends = jnp.cumsum(_links(x), axis=-2)
    return jnp.concatenate([jnp.zeros_like(ends[..., :1, :]), ends], axis=-2)


def _links(x: Float[Array, "*N L"]) -> Float[Array, "*N L 2"]:
    angle = einsum("...j,ij->...i", x, jnp.tril(jnp.ones((x.shape[-1],) * 2, x.dtype)))
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


_LOG_CONSTANT = float(
    np.sum(np.log(PRIOR_STD)) + 2 * np.log(GOAL_STD) + 0.5 * (LINKS + 2) * np.log(2 * np.pi)
)
