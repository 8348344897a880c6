"""Sums of weights in blocks of samples, against NumPy."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, make_batch, random_mixture

from natmix.kernels import importance_sums


@pytest.mark.parametrize("rows", [7, 64, 1000])
def test_sums_in_blocks(monkeypatch, rows):
    mixture = random_mixture(0, 4, 3, spread=6.0)
    x, _ = draw(mixture, 1, [40] * 4)
    batch = make_batch(mixture, x, jnp.zeros(160), log_background=-jnp.sum(jnp.abs(x), axis=1))
    n = 130
    valid = (jnp.arange(160) % 5 > 0) & (jnp.arange(160) < n)
    batch = dataclasses.replace(batch, valid=valid, count=jnp.asarray(n))
    log_c = batch.log_components.at[:, 2].set(-jnp.inf)
    monkeypatch.setattr(importance_sums, "block_rows", lambda elements: rows)

    log_w = np.where(valid[:, None], log_c - batch.log_background[:, None], -np.inf)
    largest = log_w.max(0)
    np.testing.assert_array_equal(importance_sums.largest_log_weights(log_c, batch), largest)
    top = np.where(np.isfinite(largest), largest, 0)
    w = np.exp(log_w - top)
    columns, factors = np.random.default_rng(0).normal(size=(160, 3)), np.array([1.0, -2, 3, 0.5])
    got = importance_sums.weighted_sums(log_c, batch, jnp.asarray(top), jnp.asarray(columns))
    np.testing.assert_allclose(got, w.T @ columns, rtol=1e-10, atol=1e-12)
    got = importance_sums.sample_sums(log_c, batch, jnp.asarray(top), jnp.asarray(factors))
    np.testing.assert_allclose(got[:n], (w @ factors)[:n], rtol=1e-10, atol=1e-12)
    got = importance_sums.log_sums(log_c, mixture.log_weights, batch.count)
    expected = np.logaddexp.reduce(np.asarray(log_c + mixture.log_weights), axis=1)
    np.testing.assert_allclose(got[:n], expected[:n], rtol=1e-12)
    total = np.where(np.isfinite(largest), w.sum(0) ** 2 / np.maximum((w**2).sum(0), 1e-30), 0)
    np.testing.assert_allclose(importance_sums.effective_samples(log_c, batch), total, rtol=1e-10)
