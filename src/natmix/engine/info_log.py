"""The reports of many iterations in two arrays, one of numbers and one of whole numbers.

An array for every entry of a report would be a write, with a program of its own, for each of them.
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
_WHOLES = tuple(name for name, kind in _TYPES.items() if kind in (Count, Flag))
assert len(_REALS) + len(_WHOLES) == len(_TYPES), "an entry of a report is a Scalar, a Count or a Flag"


class InfoLog(eqx.Module):
    """Row i is the report of iteration i; the entries come last, after an axis of seeds if there is one."""

    reals: Float[Array, "C *S F"]
    wholes: Int[Array, "C *S I"]

    @classmethod
    def empty(cls, length: int, blank: Any) -> "InfoLog":
        """For reports like ``blank``, an `Info` of shapes."""
        reals, wholes = jax.eval_shape(_packed, blank)
        return cls(*(jnp.zeros((length, *a.shape), a.dtype) for a in (reals, wholes)))

    def put(self, i: Count, info: Info) -> "InfoLog":
        """With this report in row i."""
        rows = zip((self.reals, self.wholes), _packed(info), strict=True)
        return InfoLog(*(jax.lax.dynamic_update_slice_in_dim(log, row[None], i, 0) for log, row in rows))

    def arrays(self, n: int) -> dict[str, np.ndarray]:
        """The first ``n`` rows by name, once they are on the host."""
        reals, wholes = (np.moveaxis(np.asarray(a)[:n], -1, 0) for a in (self.reals, self.wholes))
        out = dict(zip(_REALS, reals, strict=True)) | dict(zip(_WHOLES, wholes, strict=True))
        return {name: out[name].astype(bool) if kind is Flag else out[name] for name, kind in _TYPES.items()}


def _packed(info: Info) -> tuple[Float[Array, "*S F"], Int[Array, "*S I"]]:
    reals = jnp.stack([getattr(info, name) for name in _REALS], axis=-1)
    return reals, jnp.stack([getattr(info, name).astype(jnp.int32) for name in _WHOLES], axis=-1)
