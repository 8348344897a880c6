"""Standard normal numbers are those of JAX, however they come about."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix.kernels.normal_draws import normals


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("shape", [(3,), (300, 20), (1, 1)])
def test_the_same_as_jax(impl, dtype, shape):
    keys = jax.random.split(jax.random.key(5, impl=impl), 4)
    expected = jax.vmap(lambda key: jax.random.normal(key, shape, dtype))(keys)
    drawn = normals(keys, shape, np.dtype(dtype))
    assert drawn.dtype == dtype
    np.testing.assert_allclose(drawn, expected, rtol=1e-6, atol=1e-7)


def test_under_vmap_as_well():
    keys = jax.random.split(jax.random.key(1), (2, 3))
    both = jax.vmap(lambda k: normals(k, (4,), np.dtype("float32")))(keys)
    np.testing.assert_array_equal(both[1], normals(keys[1], (4,), np.dtype("float32")))
