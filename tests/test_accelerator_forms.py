"""What is computed otherwise on an accelerator gives the same numbers: both forms, here, on a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix import GMMVI, Mixture
from natmix.targets import JaxTarget
from natmix.targets import _block as block_module
from natmix.targets._block import block_points, numbers

D = 3


def two_bumps(x):
    return jnp.logaddexp(-0.5 * jnp.sum((x - 1) ** 2), -jnp.sum((x + 1) ** 2))


def after_some_steps(codename, reuse, steps=4):
    algorithm = GMMVI.from_codename(
        codename,
        sample_selector={"desired_samples": 40, "reuse_ratio": reuse},
        **({"component_adaptation": {"add_iters": 2, "database_size": 100}} if codename[1] == "A" else {}),
    )
    rng = np.random.default_rng(0)
    mixture = Mixture.full(jnp.ones(3), jnp.asarray(rng.normal(size=(3, D))), jnp.tile(jnp.eye(D), (3, 1, 1)))
    state, infos = algorithm.init(0, mixture, capacity=6), []
    step = jax.jit(lambda state: algorithm.step(state, JaxTarget(two_bumps, D)))
    for _ in range(steps):
        state, info = step(state)
        infos.append(info)
    return state, infos


@pytest.mark.parametrize("reuse", [0.0, 2.0])
@pytest.mark.parametrize("codename", ["SAMTRON", "ZAMTRUX", "SEPYFUX"])
def test_an_iteration(codename, reuse, monkeypatch):
    wanted, infos = after_some_steps(codename, reuse)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jax.clear_caches()
    found, others = after_some_steps(codename, reuse)
    jax.clear_caches()
    assert [int(i.components) for i in infos] == [int(i.components) for i in others]
    assert [int(i.evaluations) for i in infos] == [int(i.evaluations) for i in others]
    np.testing.assert_allclose([i.elbo for i in infos], [i.elbo for i in others], rtol=1e-3)
    np.testing.assert_allclose(found.mixture.means, wanted.mixture.means, atol=2e-3)
    np.testing.assert_allclose(found.mixture.covariances, wanted.mixture.covariances, atol=5e-3)
    np.testing.assert_array_equal(found.ids, wanted.ids)


def test_numbers_of_a_function():
    def target(x):
        y = jnp.outer(x, jnp.arange(5.0))  # 20, beside the numbers themselves
        total, _ = jax.lax.scan(lambda c, _: (c + 1, None), jnp.sum(y), None, length=7)
        return total

    counted = numbers(jax.make_jaxpr(target)(jnp.zeros(4)).jaxpr)
    assert 20 + 1 + 7 <= counted <= 20 + 20 + 5 + 10 + 7 + 7
    endless = jax.make_jaxpr(lambda x: jax.lax.while_loop(lambda c: c < 9, lambda c: c + 1, x[0]))
    assert numbers(endless(jnp.zeros(4)).jaxpr) == np.inf


def test_a_light_target_is_evaluated_in_larger_blocks(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(block_module, "by_memory", lambda each, fewest, most: most)
    points = jnp.zeros((10**6, 2))
    usual = block_points(None, points)
    assert block_points(lambda x: jnp.sum(x, axis=1), points) > 4 * usual
    assert block_points(lambda x: jnp.sum(x @ jnp.ones((2, 10**5)), axis=1), points) == usual
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert block_points(lambda x: jnp.sum(x, axis=1), points) == 128
