"""Standard normal numbers for many keys: those of `jax.random.normal`, sooner on a CPU.

There JAX runs its generator (Threefry-2x32 of Salmon et al., 2011) in a loop over rounds, a few passes over
memory each. Here all rounds are one expression, which the compiler turns into one pass.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def normals(keys: Key[Array, " B"], shape: tuple[int, ...], dtype: np.dtype) -> Float[Array, "B ..."]:
    """`jax.random.normal` with each of these keys."""
    if jax.default_backend() == "cpu" and dtype == np.float32 and usual(keys):
        return _as_normals(_bits(jax.random.key_data(keys), math.prod(shape))).reshape(-1, *shape)
    return jax.vmap(lambda key: jax.random.normal(key, shape, dtype))(keys)


def usual(keys: Key[Array, "..."]) -> bool:
    """Whether these keys are of the generator that is known here."""
    by_number = getattr(jax.config, "jax_threefry_partitionable", False)
    return by_number and str(jax.random.key_impl(keys)) == "threefry2x32"


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
