import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plans import GPU, XLA

from natmix.kernels.interval_search import first_inside, narrowed
from natmix.kernels.plan import using


@pytest.mark.parametrize("edge", [-3.0, 0.1, 6.99])
def test_the_first_point_inside_is_found_from_above(edge):
    edges = jnp.asarray([edge, edge / 2])
    found = first_inside(lambda t: t >= edges, jnp.full(2, -8.0), jnp.full(2, 8.0), 30, 2)
    assert np.all(np.asarray(found) >= np.asarray(edges))
    np.testing.assert_allclose(found, edges, atol=16 / 2**29)


def test_many_sections_give_what_halvings_give():
    edges = jnp.asarray(np.random.default_rng(0).uniform(-9, 9, 50))
    low, high = jnp.full(50, -8.0), jnp.full(50, 8.0)
    many = (low, high)
    for _ in range(4):
        many = narrowed(lambda t: t >= edges, *many, 32)
    halved = first_inside(lambda t: t >= edges, low, high, 20, 50)
    np.testing.assert_allclose(many[1], halved, atol=1e-12)


@pytest.mark.parametrize("work", [1, 2**13, 2**17])
def test_an_accelerator_finds_the_same_in_few_rounds(work):
    edges = jnp.asarray(np.random.default_rng(1).uniform(-7, 7, 30))
    low, high, looked = jnp.full(30, -8.0), jnp.full(30, 8.0), []

    def inside(t):
        looked.append(len(t))
        return t >= edges

    with using(XLA):
        halved = first_inside(lambda t: t >= edges, low, high, 22, work)
    with using(GPU):
        found = first_inside(inside, low, high, 22, work)
    assert np.all((found >= edges) & (found <= edges + 16 / 2**21))
    np.testing.assert_allclose(found, halved, atol=16 / 2**21)
    assert max(looked) * work < max(2**22, 2**7 * work)
    assert len(looked) == {1: 2, 2**13: 3, 2**17: 4}[work]


def test_runs_together_look_at_fewer_points_and_find_the_same():
    """What a point costs counts for all of them; all rounds together halve the interval as often."""
    edges = jnp.asarray(np.random.default_rng(2).uniform(-7, 7, (16, 30)))
    low, high, looked = jnp.full(30, -8.0), jnp.full(30, 8.0), []

    def search(edges):
        def inside(t):
            looked.append(len(t))
            return t >= edges

        return first_inside(inside, low, high, 20, 128 * 20)

    with using(GPU):
        alone = jnp.stack([search(each) for each in edges])
        assert set(looked) == {2**10 - 1}
        looked.clear()
        with using(dataclasses.replace(GPU, together=16)):
            together = jax.vmap(search)(edges)
    assert max(looked) < 2**7
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-9)


def test_the_upper_end_is_the_answer_if_nothing_below_is_inside():
    assert float(first_inside(lambda t: t > 100, jnp.asarray(0.0), jnp.asarray(1.0), 20, 1)) == 1.0
