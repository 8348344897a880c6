"""The reports of many iterations in two arrays, one of real numbers and one of integers.

With one array per field every iteration would write each of them by a kernel of its own.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from natmix.array_types import Count, Flag, Scalar
from natmix.modules.state import Info

_TYPES = {f.name: f.type for f in dataclasses.fields(Info)}
_REALS = tuple(name for name, kind in _TYPES.items() if kind is Scalar)
_INTEGERS = tuple(name for name, kind in _TYPES.items() if kind in (Count, Flag))
assert len(_REALS) + len(_INTEGERS) == len(_TYPES), "an entry of a report is a Scalar, a Count or a Flag"


class InfoLog(eqx.Module):
    """Row i is the report of iteration i. Fields are the last axis, after one of seeds if there is one."""

    reals: Float[Array, "C *S F"]
    integers: Int[Array, "C *S I"]

    @classmethod
    def empty(cls, length: int, blank: Any) -> "InfoLog":
        """Room for ``length`` reports with the shapes and types of ``blank``."""
        reals, integers = jax.eval_shape(_packed, blank)
        return cls(*(jnp.zeros((length, *a.shape), a.dtype) for a in (reals, integers)))

    def put(self, i: Count, info: Info) -> "InfoLog":
        """The log with this report in row i."""
        rows = zip((self.reals, self.integers), _packed(info), strict=True)
        return InfoLog(*(jax.lax.dynamic_update_slice_in_dim(log, row[None], i, 0) for log, row in rows))

    def arrays(self, n: int) -> dict[str, np.ndarray]:
        """The first ``n`` rows by name, once they are on the host."""
        reals, integers = (np.moveaxis(np.asarray(a)[:n], -1, 0) for a in (self.reals, self.integers))
        out = dict(zip(_REALS, reals, strict=True)) | dict(zip(_INTEGERS, integers, strict=True))
        return {name: out[name].astype(bool) if kind is Flag else out[name] for name, kind in _TYPES.items()}


def _packed(info: Info) -> tuple[Float[Array, "*S F"], Int[Array, "*S I"]]:
    reals = jnp.stack([getattr(info, name) for name in _REALS], axis=-1)
    return reals, jnp.stack([getattr(info, name).astype(jnp.int32) for name in _INTEGERS], axis=-1)
