"""What is computed otherwise on an accelerator gives the same numbers: both forms, here, on a CPU."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plans import DESKTOP_GPU, GPU, XLA

from natmix import GMMVI, Mixture
from natmix.kernels import coordinates
from natmix.kernels.plan import using
from natmix.targets import JaxTarget, points_per_call
from natmix.targets.points_per_call import numbers, points_at_once

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


FORMS = {"circular": (GPU, 64), "stacked": (GPU, 0), "whitened": (DESKTOP_GPU, 64)}
"""The plan, and up to how many dimensions products of coordinates are used."""
CASES = [
    ("SAMTRON", 2.0, "circular"),
    ("ZAMTRUX", 2.0, "circular"),
    ("SEPYFUX", 0.0, "circular"),
    ("SAMTRON", 2.0, "stacked"),
    ("SAMTRON", 2.0, "whitened"),
]


@pytest.fixture(scope="module")
def both_forms(quick_compilation):
    """All cases as on a CPU and as on an accelerator, there with the target in small blocks."""
    here = {case[:2]: after_some_steps(*case[:2]) for case in CASES}
    there: dict[str, Any] = {}
    for form, (plan, quadratic) in FORMS.items():
        with pytest.MonkeyPatch.context() as patch, using(plan):
            patch.setattr(coordinates, "_ACCELERATOR_QUADRATIC", quadratic)
            patch.setattr(points_per_call, "_ACCELERATOR_BLOCKS", (64, 64))
            jax.clear_caches()  # of what is compiled within a step
            try:
                there |= {case: after_some_steps(*case[:2]) for case in CASES if case[2] == form}  # type: ignore[misc]
            finally:
                jax.clear_caches()
    return here, there


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_iteration(case, both_forms):
    here, there = both_forms
    (wanted, infos), (found, others) = here[case[:2]], there[case]
    assert [int(i.components) for i in infos] == [int(i.components) for i in others]
    assert [int(i.evaluations) for i in infos] == [int(i.evaluations) for i in others]
    np.testing.assert_allclose([i.elbo for i in infos], [i.elbo for i in others], rtol=1e-3)
    np.testing.assert_allclose(found.mixture.means, wanted.mixture.means, atol=2e-3)
    np.testing.assert_allclose(found.mixture.covariances, wanted.mixture.covariances, atol=5e-3)
    np.testing.assert_array_equal(found.ids, wanted.ids)


def counted(fn, points=50):
    return numbers(jax.make_jaxpr(fn)(jnp.zeros((points, 4))).jaxpr, points)


def test_numbers_of_a_function():
    def target(x):
        y = jnp.sum(x[:, :, None] * jnp.arange(5.0), axis=(1, 2))  # 20 for each point
        return jax.lax.scan(lambda c, _: (c + 1, None), y, None, length=7)[0]

    assert 50 * (20 + 1 + 7) <= counted(target) <= 50 * (20 + 20 + 20 + 1 + 7 + 7)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c + 1, x),
        lambda x: jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        lambda x: jax.lax.map(jnp.sum, x),
    ],
    ids=["a loop", "the host", "one point after another"],
)
def test_work_that_is_unknown(fn):
    assert counted(fn) == np.inf


def test_a_loop_that_is_never_run_is_no_work():
    def endless(x):
        return jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c + 1, x)

    assert counted(lambda x: jax.lax.scan(lambda c, _: (endless(c), None), x, None, length=0)[0]) < 10**4


def test_a_light_target_is_evaluated_in_larger_blocks():
    points = jnp.zeros((10**6, 2))
    with using(GPU):
        usual = points_at_once(None, points)
        assert points_at_once(lambda x: jnp.sum(x, axis=1), points) > 4 * usual
        assert points_at_once(lambda x: jnp.sum(x @ jnp.ones((2, 10**5)), axis=1), points) == usual
        assert points_at_once(lambda x: jax.lax.map(jnp.sum, x), points) == usual
        assert points_at_once(lambda x: jnp.sum(x, axis=1), points[:100]) == usual
    with using(XLA):
        assert points_at_once(lambda x: jnp.sum(x, axis=1), points) == 128
