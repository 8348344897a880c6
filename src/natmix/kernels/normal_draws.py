"""Standard normal numbers for many keys, and samples of many Gaussians.

Forms of standard normal numbers, which are those of `jax.random.normal`:

    one_pass    for float32 on a CPU. There JAX runs its generator (Threefry-2x32 of Salmon et al., 2011) in a
                loop over rounds, with a few passes over memory each. Here all rounds are one expression,
                which compiles to one pass.
    jax         `jax.random.normal` itself, for other devices, types and generators.

Forms of samples of components:

    native      draws only as many numbers as the samples need.
    blocks      some components at a time; absent ones are skipped.
    whole       all components at once, on several devices: each draws for its own components.
"""

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from natmix.kernels import native
from natmix.kernels.blocks import components_at_once, map_components
from natmix.kernels.forms import first_applicable, otherwise
from natmix.kernels.gaussian_batch import GaussianBatch, triangular
from natmix.kernels.plan import Plan, current
from natmix.kernels.ring_buffer import leading
from natmix.kernels.sharding import everywhere

NormalForm = Literal["one_pass", "jax"]
DrawForm = Literal["native", "blocks", "whole"]

_ELEMENTS = 2**15
"""Numbers drawn at once on a CPU: enough to keep it busy, few enough to skip absent components."""
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def _known(keys: Key[Array, " B"], dtype: np.dtype) -> bool:
    """Whether the keys belong to the generator implemented here, and the type is float32."""
    by_number = getattr(jax.config, "jax_threefry_partitionable", False)
    return dtype == np.float32 and by_number and str(jax.random.key_impl(keys)) == "threefry2x32"


NORMAL_FORMS: tuple[tuple[NormalForm, Callable[[Plan, Key[Array, " B"], np.dtype], bool]], ...] = (
    ("one_pass", lambda plan, keys, dtype: plan.on_cpu and _known(keys, dtype)),
    ("jax", otherwise),
)
DRAW_FORMS: tuple[tuple[DrawForm, Callable[[Plan, Key[Array, " B"], GaussianBatch], bool]], ...] = (
    ("native", lambda plan, keys, g: plan.native and g.factors is not None and _known(keys, g.dtype)),
    ("blocks", lambda plan, keys, g: plan.mesh is None),
    ("whole", otherwise),
)


def choose_normals(plan: Plan, keys: Key[Array, " B"], dtype: np.dtype) -> NormalForm:
    """One pass on a CPU if the generator is Threefry and the type float32."""
    return first_applicable(NORMAL_FORMS, plan, keys, dtype)


def choose_draws(plan: Plan, keys: Key[Array, " B"], gaussians: GaussianBatch) -> DrawForm:
    """The native kernel implements Threefry, for dense factors in float32."""
    return first_applicable(DRAW_FORMS, plan, keys, gaussians)


def normals(
    keys: Key[Array, " B"], shape: tuple[int, ...], dtype: np.dtype, form: NormalForm | None = None
) -> Float[Array, "B ..."]:
    """`jax.random.normal` with each of these keys."""
    form = form or choose_normals(current(), keys, dtype)
    if form == "one_pass":
        return _as_normals(_bits(jax.random.key_data(keys), math.prod(shape))).reshape(-1, *shape)
    return jax.vmap(lambda key: jax.random.normal(key, shape, dtype))(keys)


def component_draws(
    gaussians: GaussianBatch,
    keys: Key[Array, " B"],
    number: Int[Array, " K"],
    present: Bool[Array, " K"],
    most: int,
    form: DrawForm | None = None,
) -> tuple[Float[Array, "N D"], Int[Array, " N"]]:
    """``number`` samples of each component, at most ``most``, in the order of the components; their slots.

    The result is undefined after the last sample.
    """
    form = form or choose_draws(current(), keys, gaussians)
    K, D = gaussians.capacity, gaussians.dim
    if form == "native":
        m, L, _ = triangular(gaussians)
        return native.draws(jax.random.key_data(keys), number, m, L, K * most)
    draw = Partial(_draws, gaussians, most)
    if form == "blocks":
        at_once = components_at_once(most * D, max(1, _ELEMENTS // (most * D)))
        x = map_components(draw, (jnp.arange(K), keys), present, at_once)
    else:
        x = draw(jnp.arange(K), keys)
    source, place = leading(everywhere(number), most)
    return everywhere(x.reshape(K * most, D))[place], source


def _draws(
    gaussians: GaussianBatch, n: int, slots: Int[Array, " B"], keys: Key[Array, " B"]
) -> Float[Array, "B n D"]:
    """``n`` samples of each of these components."""
    return gaussians.take(slots).colour(normals(keys, (n, gaussians.dim), gaussians.dtype))


def _bits(key: UInt32[Array, "B 2"], n: int) -> UInt32[Array, "B n"]:
    """`jax.random.bits`: both words of the numbers 0 to n - 1, encrypted, combined."""
    first, second = key[:, :1], key[:, 1:]
    schedule = (first, second, first ^ second ^ _PARITY)
    a = jnp.broadcast_to(first, (key.shape[0], n))
    b = second + jax.lax.iota(jnp.uint32, n)
    for i in range(5):
        for bits in _ROTATIONS[i % 2]:
            a = a + b
            b = a ^ (b << np.uint32(bits) | b >> np.uint32(32 - bits))
        a = a + schedule[(i + 1) % 3]
        b = b + schedule[(i + 2) % 3] + np.uint32(i + 1)
    return a ^ b


def _as_normals(bits: UInt32[Array, "B n"]) -> Float[Array, "B n"]:
    """The inverse of the distribution function at 23 of the bits, as a number above -1 and below 1."""
    below_two = jax.lax.bitcast_convert_type(
        bits >> np.uint32(9) | np.float32(1).view(np.uint32), jnp.float32
    )
    least = np.nextafter(np.float32(-1), np.float32(0))
    u = jnp.maximum(least, (below_two - 1) * (1 - least) + least)
    return np.float32(np.sqrt(2)) * jax.lax.erf_inv(u)
