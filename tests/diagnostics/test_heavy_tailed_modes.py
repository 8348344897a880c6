"""Modes with the tails of Student's t: their peaks are no modes of their own, and a missed one is found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_t

from natmix import JaxTarget, Mixture
from natmix.diagnostics import SearchProblem, search_modes
from natmix.diagnostics.known_modes import KnownModes
from natmix.initialization.pathfinder import PathGaussian

jax.config.update("jax_enable_x64", True)

D, DOF = 30, 5.0
SPREAD = DOF / (DOF - 2) * np.eye(D)
HEIGHT = float(multivariate_t(np.zeros(D), np.eye(D), DOF).logpdf(np.zeros(D)))
AWAY = np.append(np.full(1, 60.0), np.zeros(D - 1))


def test_the_peak_of_a_mode_that_the_mixture_has_belongs_to_it():
    """In 30 dimensions it is 25 nats above the Gaussian with the covariance of Student's t with 5 degrees."""
    known = KnownModes(Mixture.full([1.0], np.zeros((1, D)), SPREAD[None]), 0.0)
    assert HEIGHT - known.explain(np.zeros((1, D)))[0][0] == pytest.approx(25.5, abs=0.5)
    peak, missed = (PathGaussian(x, 0.7 * np.eye(D), np.log(0.1)) for x in (np.zeros(D), AWAY))
    for number, gaussian in ((1, peak), (2, missed)):  # before it is known that the tails are heavy
        assert known.add(gaussian, HEIGHT, gaussian.mean) == number
        known.hit(number, 10 * number)
    known.hit(0, 5)
    known.without_peaks()
    assert len(known.outside) == 2
    known.dof = DOF
    known.without_peaks()
    assert [o.gaussian.mean[0] for o in known.outside] == [60.0]
    assert known.hits == {0: 15, 1: 20}
    assert known.mode_at(AWAY, HEIGHT) == 1
    assert [m.position[0] for m in known.missed()] == [60.0]
    # Now that the tails are known, another run to the peak ends in the mixture's mode at once.
    assert known.add(peak._replace(mean=np.full(D, 0.01)), HEIGHT, np.full(D, 0.01)) == 0


def test_a_mixture_that_has_all_heavy_tailed_modes_lacks_none_and_one_that_lacks_one_is_told():
    centres = jnp.array([np.zeros(D), AWAY])

    def log_density(x):
        squares = jnp.sum((x - centres) ** 2, axis=1)
        return HEIGHT + jnp.log(0.5) + jax.nn.logsumexp(-0.5 * (DOF + D) * jnp.log1p(squares / DOF))

    target, region = JaxTarget(log_density, D), Mixture.full([1.0], np.zeros((1, D)), np.eye(D)[None])
    for number in (1, 2):
        mixture = Mixture.full(
            np.full(number, 1 / number), np.asarray(centres[:number]), np.stack(number * [SPREAD])
        )
        log_z = float(np.log(number / 2))
        found = search_modes(SearchProblem(mixture, target, region, log_z, jax.random.key(0), 20_000), 32)
        assert len(found.missed) == 2 - number
        assert found.dof < 30
