"""The modes of a mixture and their corrected shares, against closed forms."""

import jax
import numpy as np
import pytest
from known_mixtures import spherical, target_of

from natmix import Mixture
from natmix.diagnostics import mode_labels, modes
from natmix.diagnostics.elbo import evaluated_draws

jax.config.update("jax_enable_x64", True)


def test_components_without_a_valley_between_them_are_one_mode():
    mixture = spherical([0.1, 0.5, 0.1, 0.3], [[0, 0], [9, 9], [1, 0], [0.5, 1.0]])
    labels = mode_labels(mixture)
    assert labels[1] == 0 or labels[0] == 0
    assert len(set(labels[[0, 2, 3]])) == 1
    assert len(set(labels)) == 2
    order = [2, 0, 3, 1]
    shuffled = spherical([0.1, 0.1, 0.3, 0.5], np.asarray(mixture.means)[order])
    np.testing.assert_array_equal(mode_labels(shuffled), labels[order])


def test_a_valley_is_a_density_below_half_of_the_lower_end():
    # Two unit normals at distance d have a dip to 2 exp(-d^2/8) / (1 + exp(-d^2/2)).
    for d, expected in ((2.9, 1), (3.5, 2)):
        dip = 2 * np.exp(-(d**2) / 8) / (1 + np.exp(-(d**2) / 2))
        assert (dip >= 0.5) == (expected == 1)
        assert mode_labels(spherical([0.5, 0.5], [[0.0], [d]])).max() + 1 == expected


def test_a_low_bridge_does_not_join_two_modes():
    bridge = spherical([0.45, 0.45, 0.1], [[-6.0, 0], [6, 0], [0, 0]], 1.0)
    wide = Mixture.full(bridge.weights, bridge.means, np.stack([np.eye(2), np.eye(2), 16 * np.eye(2)]))
    labels = mode_labels(wide)
    assert labels[0] != labels[1]
    assert labels[2] in labels[:2]
    # A chain of components of the same height is one mode, however long.
    chain = spherical(np.full(9, 1 / 9), np.stack([2.0 * np.arange(9), np.zeros(9)], axis=1))
    assert mode_labels(chain).max() == 0


def test_light_components_join_the_mode_they_are_in():
    rng = np.random.default_rng(0)
    means = np.concatenate([[[0.0, 0], [20, 0]], rng.normal(size=(200, 2)) * 0.1 + [20, 0]])
    weights = np.concatenate([[0.6, 0.3], np.full(200, 0.1 / 200)])
    labels = mode_labels(spherical(weights, means))
    assert labels[0] == 0
    assert set(labels[1:]) == {1}


def test_corrected_shares_are_those_of_the_target():
    mixture = spherical([0.5, 0.5], [[-5.0, 0], [5, 0]])
    target = target_of(spherical([0.2, 0.8], [[-5.0, 0], [5, 0]]))
    x = evaluated_draws(mixture, target, jax.random.key(0), 3000)
    found = modes(mixture, x.x, np.exp(x.log_ratio))
    assert [m.share for m in found] == pytest.approx([0.5, 0.5])
    for mode in found:
        true = 0.8 if mode.mean[0] > 0 else 0.2
        assert mode.corrected_share == pytest.approx(true, abs=max(4 * mode.standard_error, 1e-9))


def test_the_errors_of_corrected_shares_are_honest():
    mixture = spherical([0.5, 0.5], [[-5.0, 0], [5, 0]], 1.2)
    target = target_of(spherical([0.35, 0.65], [[-5.0, 0.3], [5, 0]]))
    off = []
    for s in range(40):
        x = evaluated_draws(mixture, target, jax.random.key(s), 500)
        mode = next(m for m in modes(mixture, x.x, np.exp(x.log_ratio)) if m.mean[0] > 0)
        off.append((mode.corrected_share - 0.65) / mode.standard_error)
    assert 0.6 < np.std(off) < 1.5
