"""Targets written in JAX."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int

from natmix.array_types import Count, PRNGKey
from natmix.kernels.blocks import map_blocks
from natmix.modules.records import Evaluation
from natmix.targets.base import AbstractTarget, check_batch_size, check_dim
from natmix.targets.points_per_call import points_at_once


class JaxTarget(AbstractTarget):
    """A JAX function giving the log density.

    Attributes:
        fn: ``fn(x)``, of one point [D] or, if ``batched``, of points [N, D]; with ``stochastic`` it is
            ``fn(key, x)``, and every point (every block of points, if ``batched``) gets its own key.
        dim: D.
        batched: whether ``fn`` takes many points and returns as many values.
        returns_gradient: whether ``fn`` returns (value, gradient); otherwise JAX differentiates it.
        stochastic: whether ``fn`` takes a key (minibatches).
        values_only: ``fn`` cannot be differentiated.
        batch_size: points evaluated at once; if left out 128, on an accelerator 1024 to 8192 by its memory,
            or more if the target is cheap. Blocks are padded, so large ones waste time while there are few
            components; every block costs an accelerator about as much as ten small kernels.
    """

    fn: Callable[..., Any]
    dim: int = eqx.field(static=True, converter=check_dim)
    batched: bool = eqx.field(static=True, default=False)
    returns_gradient: bool = eqx.field(static=True, default=False)
    stochastic: bool = eqx.field(static=True, default=False)
    values_only: bool = eqx.field(static=True, default=False)
    batch_size: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not callable(self.fn):
            raise ValueError(f"The target must be a function of a point, got {type(self.fn).__name__}.")
        if self.values_only and self.returns_gradient:
            raise ValueError("Give either returns_gradient=True or values_only=True, not both.")
        if self.batch_size is not None:
            check_batch_size(self.batch_size)

    @property
    def has_gradient(self) -> bool:
        """Whether the target provides gradients."""
        return not self.values_only

    @property
    def inside_jax(self) -> bool:
        """Whether JAX can trace it."""
        return True

    def evaluate(
        self, key: PRNGKey, x: Float[Array, "Q D"], count: Count | int, needs_gradient: bool
    ) -> Evaluation:
        """The log density, and its gradient if needed, at the first ``count`` points."""
        noisy_blocks = self.batched and self.stochastic
        block = Partial(_evaluate, self, key, needs_gradient)
        judged = None if noisy_blocks else lambda x: block(jnp.arange(x.shape[0]), x)
        rows = self.batch_size or points_at_once(judged, x)
        arrays = (jnp.arange(x.shape[0]), x)
        return Evaluation(*map_blocks(block, arrays, rows, count, keep_blocks=noisy_blocks))

    def _call(self, key: PRNGKey, x: Array) -> Any:
        return self.fn(key, x) if self.stochastic else self.fn(x)

    def _value(self, key: PRNGKey, x: Array) -> Array:
        out = self._call(key, x)
        return out[0] if self.returns_gradient else out

    def _each(self, keys: Array, x: Array, needs_gradient: bool) -> tuple[Array, Array | None]:
        if not needs_gradient:
            return jax.vmap(self._value)(keys, x), None
        if self.returns_gradient:
            return jax.vmap(self._call)(keys, x)
        return jax.vmap(jax.value_and_grad(self._value, argnums=1))(keys, x)

    def _many(self, keys: Array, x: Array, needs_gradient: bool) -> tuple[Array, Array | None]:
        key = keys[0]
        if not needs_gradient:
            return self._value(key, x), None
        if self.returns_gradient:
            return self._call(key, x)
        value, vjp = jax.vjp(lambda x: self._value(key, x), x)
        # Points do not depend on each other: the gradient of the sum holds the gradient of every point.
        return value, vjp(jnp.ones_like(value))[0]


def _evaluate(
    target: JaxTarget, key: PRNGKey, needs_gradient: bool, index: Int[Array, " B"], x: Float[Array, "B D"]
) -> tuple[Float[Array, " B"], Float[Array, "B D"] | None]:
    """One block of points; ``index`` numbers them among all points."""
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
    block = target._many if target.batched else target._each
    value, gradient = block(keys, x, needs_gradient)
    value = value.astype(x.dtype)
    return value, None if gradient is None else gradient.astype(x.dtype)
