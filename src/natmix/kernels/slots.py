"""One slot of arrays with components first, set to a value.

Forms: index, which writes in place on a CPU; and compare, which needs no communication between devices and is
fused with the kernel before it on an accelerator.
"""

from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from natmix.array_types import Count, Flag
from natmix.kernels.forms import PlanRows, first_applicable, otherwise
from natmix.kernels.plan import Plan, current

S = TypeVar("S")
Form = Literal["index", "compare"]


FORMS: PlanRows[Form] = (("index", lambda plan: plan.on_one_cpu), ("compare", otherwise))


def choose(plan: Plan) -> Form:
    """By the device alone."""
    return first_applicable(FORMS, plan)


def set_slot(values: S, slot: Count, value: S, do: Flag, form: Form | None = None) -> S:
    """Give slot ``slot`` of the arrays ``values`` the ``value``, if ``do``."""
    form = form or choose(current())

    def put(v: Array, f: Array) -> Array:
        if form == "index":
            return v.at[slot].set(jnp.where(do, f, v[slot]))
        here = do & (jnp.arange(v.shape[0]) == slot)
        return jnp.where(here.reshape(-1, *[1] * (v.ndim - 1)), jnp.asarray(f, v.dtype), v)

    return jax.tree.map(put, values, value)
