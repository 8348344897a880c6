"""Search on a line for the point from which on a condition holds.

Forms: halving (bisection), one point per problem in every round, for a CPU; and sections, many points in few
rounds, for an accelerator, where 127 points cost as much as one.

What a point costs is that of all runs together (`Plan.together`): for 16 runs with 128 components in 20
dimensions 1023 points would be arrays of 42 million entries in every round.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from natmix.kernels.forms import PlanRows, first_applicable, otherwise
from natmix.kernels.plan import Plan, current

_HALVINGS_PER_ROUND = (7, 11)
_NUMBERS_PER_ROUND = 2**22
"""Sections have 127 points, and up to 2047 if each point is little work."""

Form = Literal["halving", "sections"]


FORMS: PlanRows[Form] = (("halving", lambda plan: plan.on_cpu), ("sections", otherwise))


def choose(plan: Plan) -> Form:
    """By the device alone."""
    return first_applicable(FORMS, plan)


def first_inside(
    inside: Callable[[Float[Array, " S *K"]], Bool[Array, " S *K"]],
    low: Float[Array, "*K"],
    high: Float[Array, "*K"],
    halvings: int,
    work: int,
    form: Form | None = None,
) -> Float[Array, "*K"]:
    """The smallest t in (low, high] with ``inside(t)``, to within (high - low) / 2^halvings, from above.

    ``inside`` is False up to some t and True from there on; it gets several t for each problem at
    once. ``high`` itself is not tried: it is the answer if no smaller t is inside. ``work`` is the number of
    array entries that one t for each problem needs.
    """
    plan = current()
    if (form or choose(plan)) == "halving":
        return jax.lax.fori_loop(0, halvings, lambda _, b: narrowed(inside, b[0], b[1], 2), (low, high))[1]
    at_once = int(np.clip(np.log2(_NUMBERS_PER_ROUND / (work * plan.together)), *_HALVINGS_PER_ROUND))
    rounds = -(-halvings // at_once)
    for i in range(rounds):  # in all so many halvings, so that the answer does not depend on the rounds
        low, high = narrowed(inside, low, high, 2 ** (halvings * (i + 1) // rounds - halvings * i // rounds))
    return high


def narrowed(
    inside: Callable[[Float[Array, " S *K"]], Bool[Array, " S *K"]],
    low: Float[Array, "*K"],
    high: Float[Array, "*K"],
    sections: int,
) -> tuple[Float[Array, "*K"], Float[Array, "*K"]]:
    """Divide the interval into equal sections and return the one in which ``inside`` becomes True."""
    width = (high - low) / sections
    steps = jnp.arange(1, sections, dtype=low.dtype).reshape(-1, *[1] * low.ndim)
    holds = inside(low + steps * width)
    first = jnp.where(jnp.any(holds, axis=0), jnp.argmax(holds, axis=0), sections - 1)
    start = low + first.astype(low.dtype) * width
    return start, jnp.where(first == sections - 1, high, start + width)
