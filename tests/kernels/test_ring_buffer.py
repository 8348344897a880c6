"""Rows in a circular buffer, and the like, against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import GPU, XLA

from natmix.kernels.plan import using
from natmix.kernels.ring_buffer import count_rows, front, leading, put_chosen, put_circular, to_front


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_follow_one_another_around_the_end(data):
    size, number = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 12))
    start, count = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, number))
    store, rows = np.arange(size * 2.0).reshape(size, 2), 100 + np.arange(number * 2.0).reshape(number, 2)
    wanted = store.copy()
    for i in range(count):
        wanted[(start + i) % size] = rows[i]
    chosen = jnp.arange(number) < count
    (got,) = put_chosen((jnp.asarray(store),), (jnp.asarray(rows),), chosen, jnp.asarray(start))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("plan", [XLA, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("size", "number"), [(9, 5), (5, 9), (7, 7), (1, 3)])
def test_chosen_rows_follow_one_another_around_the_end(plan, size, number):
    rng = np.random.default_rng(0)
    for start in range(size):
        chosen = rng.random(number) < 0.6
        store, rows = np.arange(size * 2.0).reshape(size, 2), 100 + np.arange(number * 2.0).reshape(number, 2)
        wanted = store.copy()
        for i, row in enumerate(rows[chosen]):
            wanted[(start + i) % size] = row
        stores = tuple(map(jnp.asarray, (store, store[:, 0])))
        with using(plan):
            both, first = put_chosen(
                stores, (jnp.asarray(rows), jnp.asarray(rows[:, 0])), jnp.asarray(chosen), jnp.asarray(start)
            )
        np.testing.assert_array_equal(both, wanted)
        np.testing.assert_array_equal(first, wanted[:, 0])


@pytest.mark.parametrize("plan", [XLA, GPU], ids=["cpu", "gpu"])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9))
def test_the_leading_places_of_rows(plan, number):
    with using(plan):
        row, place = leading(jnp.asarray(number, jnp.int32), 4)
    wanted = [(k, 4 * k + j) for k, n in enumerate(number) for j in range(n)]
    assert list(zip(row.tolist(), place.tolist(), strict=True))[: len(wanted)] == wanted
    assert row.shape == place.shape == (4 * len(number),)
    assert int(jnp.max(place)) < 4 * len(number)
    assert int(jnp.min(place)) >= 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_those_wanted_come_first_in_their_order(mask):
    rows = np.flatnonzero(mask)
    np.testing.assert_array_equal(front(jnp.asarray(mask))[: len(rows)], rows)
    (values,) = to_front(jnp.asarray(mask), jnp.arange(len(mask)) * 10)
    np.testing.assert_array_equal(values[: len(rows)], rows * 10)


def test_rows_are_counted():
    rng = np.random.default_rng(0)
    row, mask = rng.integers(0, 7, 50), rng.random(50) < 0.6
    np.testing.assert_array_equal(
        count_rows(jnp.asarray(row), jnp.asarray(mask), 9), np.bincount(row[mask], minlength=9)
    )


def test_a_buffer_inside_a_loop_is_not_copied():
    """Writing into a large buffer takes no memory beside it."""
    store, rows = jax.ShapeDtypeStruct((10**6, 8), jnp.float32), jax.ShapeDtypeStruct((64, 8), jnp.float32)

    def many(store, rows):
        return jax.lax.fori_loop(0, 5, lambda i, s: put_circular(s, rows, i * 999_990 % 10**6, i), store)

    memory = jax.jit(many, donate_argnums=0).lower(store, rows).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 10**6
