"""The look back at evaluated points: which the mixture does not explain, and Gaussians there."""

import numpy as np
import pytest

from natmix import Mixture
from natmix.diagnostics import look_back
from natmix.diagnostics.look_back import components_for_points, unexplained_points

LOW = -8.0


def one(dim=2, dtype=float):
    return Mixture.full([1.0], np.zeros((1, dim)), np.eye(dim)[None]).astype(dtype)


def log_normal(x, mean=0.0):
    return -0.5 * np.sum((x - mean) ** 2, axis=1) - 0.5 * x.shape[1] * np.log(2 * np.pi)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_dense_points_where_the_mixture_is_too_low(dtype):
    x = np.array([[0, 0], [10, 0], [10, 0], [10, 0], [10, 0], [10, 0]], dtype)
    log_p = np.array([-1.8, -2, -20, np.nan, -np.inf, np.inf], dtype)
    assert unexplained_points(one(dtype=dtype), x, log_p, 0.0, LOW).tolist() == [1]


def test_the_limit_is_a_twentieth_of_the_density():
    x = np.zeros((2, 2))
    log_p = log_normal(x) + 3 + np.log([19.9, 20.1])
    assert unexplained_points(one(), x, log_p, 3.0, -np.inf).tolist() == [1]


def test_blocks_do_not_matter(monkeypatch):
    x = np.random.default_rng(0).normal(size=(1000, 2)) * 4
    log_p = np.full(1000, -3.0)
    whole = unexplained_points(one(), x, log_p, 0.0, LOW)
    monkeypatch.setattr(look_back, "_BLOCK_ENTRIES", 64)
    assert 0 < len(whole) < 1000
    np.testing.assert_array_equal(unexplained_points(one(), x, log_p, 0.0, LOW), whole)


def test_no_points():
    empty = np.empty((0, 2)), np.empty(0)
    assert unexplained_points(one(), *empty, 0.0, LOW).size == 0
    assert components_for_points(one(), *empty, 0.0, 3) == []


def test_a_single_point_gets_the_average_covariance():
    q = Mixture.full([0.25, 0.75], np.zeros((2, 2)), np.stack([np.eye(2), 5 * np.eye(2)]))
    (mode,) = components_for_points(q, np.array([[30.0, 0]]), np.array([-2.0]), 0.0, 3)
    np.testing.assert_allclose(mode.covariance, 4 * np.eye(2), rtol=1e-6)
    np.testing.assert_array_equal(mode.position, [30, 0])
    mass = np.exp(-2) * 2 * np.pi * 4
    assert mode.share == pytest.approx(mass / (1 + mass))


def test_two_clusters_give_two_components_at_their_highest_points():
    rng = np.random.default_rng(1)
    means = np.array([[20.0, 0], [0, 40]])
    x = np.concatenate([m + 0.5 * rng.normal(size=(60, 2)) for m in means])
    log_p = np.logaddexp(*(log_normal((x - m) / 0.5) for m in means))
    found = components_for_points(one(), x, log_p, 0.0, 5)
    assert len(found) == 2
    for mode, mean in zip(found, means[::-1], strict=True):
        near = np.flatnonzero(np.linalg.norm(x - mean, axis=1) < 10)
        np.testing.assert_array_equal(mode.position, x[near[np.argmax(log_p[near])]])
        assert 0.2 < np.diag(mode.covariance).min() < np.diag(mode.covariance).max() < 0.6
        assert mode.deficit > np.log(20)
    assert len(components_for_points(one(), x, log_p, 0.0, 1)) == 1


def test_explained_points_need_no_component():
    x = np.random.default_rng(2).normal(size=(50, 2))
    assert components_for_points(one(), x, log_normal(x), 0.0, 5) == []
