"""Log densities whose value and gradient a native kernel computes in one pass."""

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from natmix.kernels.plan import current

_FEW = 64
"""Below this number of points XLA evaluates them."""


class AbstractForms(eqx.Module):
    """A log density of points, in two forms, with the arrays that it needs."""

    @abc.abstractmethod
    def by_xla(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        """By operations that JAX can differentiate."""

    @abc.abstractmethod
    def by_native_kernel(
        self, x: Float[Array, "N D"], gradient: bool
    ) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
        """The same and, if wanted, its gradient."""

    def has_native_kernel(self) -> bool:
        """Whether the kernel is there, and to be used: by default one of `natmix.kernels.native`."""
        return current().native

    def __call__(self, x: Float[Array, "N D"]) -> Float[Array, " N"]:
        return _value(self, x) if x.shape[0] >= _FEW and self.has_native_kernel() else self.by_xla(x)


@jax.custom_jvp
def _value(forms: AbstractForms, x: Float[Array, "N D"]) -> Float[Array, " N"]:
    return forms.by_native_kernel(x, gradient=False)[0]


@functools.partial(_value.defjvp, symbolic_zeros=True)
def _value_jvp(primals: tuple[AbstractForms, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    forms, x = primals
    if _moves(tangents[0]):
        moved = jax.tree.map(_instantiated, tangents, is_leaf=_is_symbolic)
        return jax.jvp(lambda forms, x: forms.by_xla(x), primals, moved)
    value, gradient = _value_and_gradient(forms, x)
    return value, jnp.sum(gradient * _instantiated(tangents[1]), axis=1)


@jax.custom_jvp
def _value_and_gradient(
    forms: AbstractForms, x: Float[Array, "N D"]
) -> tuple[Float[Array, " N"], Float[Array, "N D"]]:
    value, gradient = forms.by_native_kernel(x, gradient=True)
    assert gradient is not None
    return value, gradient


@_value_and_gradient.defjvp
def _value_and_gradient_jvp(primals: tuple[AbstractForms, Array], tangents: tuple[Any, Any]) -> Any:
    def by_xla(forms: AbstractForms, x: Array) -> tuple[Array, Array]:
        value, pull = jax.vjp(forms.by_xla, x)
        return value, pull(jnp.ones_like(value))[0]

    return _value_and_gradient(*primals), jax.jvp(by_xla, primals, tangents)[1]


def _moves(tangents: Any) -> bool:
    return not all(_is_symbolic(t) for t in jax.tree.leaves(tangents, is_leaf=_is_symbolic))


def _is_symbolic(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _instantiated(tangent: Any) -> Any:
    return np.zeros(tangent.shape, tangent.dtype) if _is_symbolic(tangent) else tangent
