"""The benchmark's row wine: the reference's training rows, and natmix's problem on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from side_by_side import problem, split

from natmix.experiments import problems

ROWS = 40


@pytest.fixture
def kept(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"features": rng.normal(size=(ROWS, 11)), "quality": rng.integers(3, 10, ROWS).astype(float)}
    np.savez(tmp_path / split.FILE, **rows)  # type: ignore[arg-type]
    return rows


def shuffled_stream(rows, length, buffer, rng):
    """As by tf.data: endlessly repeated, each next row drawn from a buffer."""
    waiting = [rows[i % len(rows)] for i in range(buffer)]
    for i in range(buffer, buffer + length):
        at = rng.integers(buffer)
        yield waiting[at]
        waiting[at] = rows[i % len(rows)]


def test_rows_are_found_in_a_stream_with_their_copies():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 3))
    rows[50:60], rows[60:65], rows[199] = rows[:10], rows[:5], rows[0]
    drawn = np.array(list(shuffled_stream(rows, 40 * len(rows), 220, rng)))
    found = split.multiset(drawn, len(rows))
    order = [np.lexsort(values.T) for values in (found, rows)]
    np.testing.assert_array_equal(found[order[0]], rows[order[1]])
    assert np.any(order[0] != np.sort(order[0]))
    np.testing.assert_array_equal(found, split.multiset(drawn[::-1], len(rows)))


def test_too_short_a_stream_is_refused():
    rows = np.arange(30.0)[:, None]
    with pytest.raises(SystemExit, match="cannot be told"):
        split.multiset(rows[:25], 30)


def test_target_and_reference_have_the_kept_rows(tmp_path, kept):
    found = problem.load("wine", 0, tmp_path, jnp.float32)
    x = 0.3 * np.random.default_rng(2).normal(size=(2, found.dim))
    layers = [np.split(v, np.cumsum([88, 8, 64, 8, 8])) for v in x]
    wanted = []
    for v, (W1, b1, W2, b2, W3, b3) in zip(x, layers, strict=True):
        h = 1 / (1 + np.exp(-(kept["features"] @ W1.reshape(11, 8) + b1)))
        h = 1 / (1 + np.exp(-(h @ W2.reshape(8, 8) + b2)))
        wanted.append(-np.sum((h @ W3 + b3 - kept["quality"]) ** 2) - v @ v / 2)
    points, key = jnp.asarray(x, jnp.float32), jax.random.key(0)
    np.testing.assert_allclose(found.reference.fn(points), wanted, rtol=1e-5)
    for values in (found.target.fn.features, found.reference.fn.features):  # type: ignore[attr-defined]
        np.testing.assert_allclose(values, kept["features"], rtol=1e-6)
    assert found.target.fn(key, points).shape == (2,)
    assert not found.secondary


def test_without_kept_rows_the_problem_is_natmixs(tmp_path):
    found = problem.load("wine", 0, tmp_path, jnp.float32)
    own = problems.load("wine", seed=0, dtype=jnp.float32)
    np.testing.assert_array_equal(found.target.fn.quality, own.target.fn.quality)  # type: ignore[attr-defined]
    assert problem.digest(tmp_path) == {}


def test_another_split_has_another_digest(tmp_path, kept):
    before = problem.digest(tmp_path)
    assert before == problem.digest(tmp_path)
    np.savez(tmp_path / split.FILE, features=kept["features"], quality=kept["quality"][::-1])
    assert before != problem.digest(tmp_path)
