"""A start in one class: registered, and found by `fit`."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import JaxTarget
from natmix.gaussians import FullGaussians
from natmix.initialization.region import Region
from natmix.initialization.starts import (
    STARTS,
    AbstractSearchStart,
    AbstractStart,
    Found,
    RegionStart,
    Setting,
    register,
)


class BestDrawStart(AbstractSearchStart):
    """The best of some draws of the initial region, as wide as the region."""

    name: ClassVar[str] = "best draw"

    def search(self, setting, evaluator, prior, key):
        x = np.asarray(prior.sample(64, key=key), float)
        log_p = evaluator.log_density(x)
        if not np.isfinite(log_p).any():
            return Found(None, "No draw of the initial region has a positive density.")
        best = x[np.argmax(log_p)]
        return Found(setting.mixture(np.ones(1), best[None], np.asarray(prior.covariances, float)))


@pytest.fixture
def best_draw():
    yield register(BestDrawStart())
    del STARTS["best draw"]


def far(x):
    return -0.5 * jnp.sum((x - 4) ** 2)


def nowhere(x):
    return jnp.where(x[0] > 1e6, 0.0, -jnp.inf)


def fitted(target, **options):
    return natmix.fit(
        target, 2, start="best draw", init_scale=3.0, max_iterations=1, progress=False, **options
    )


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_registered_start_is_found_by_fit(best_draw, covariance):
    result = fitted(far, covariance=covariance)
    assert result.settings["start"] == "best draw"
    assert result.counts.start_evaluations == 64
    assert result.mixture.covariance_family == covariance


def test_what_finds_nothing_leaves_the_region(best_draw):
    setting = Setting(JaxTarget(nowhere, 2), Region(), jax.random.key(0), float, FullGaussians)
    initial = best_draw.initialise(setting)
    assert initial.note == "No draw of the initial region has a positive density."
    assert initial.evaluations == 64
    np.testing.assert_array_equal(initial.mixture.covariance(), np.eye(2))  # the region itself


def test_it_gets_at_most_a_quarter_of_the_evaluations(best_draw):
    result = fitted(far, max_evaluations=252)
    assert (
        result.notes[0]
        == "Start 'best draw' used up its evaluations: the fit starts from the initial region."
    )
    assert result.counts.start_evaluations == 0
    assert fitted(far, max_evaluations=256).counts.start_evaluations == 64


def test_names_are_listed_and_taken_once(best_draw):
    with pytest.raises(ValueError, match="one of region, pathfinder, tempered, best draw, got 'nowhere'"):
        natmix.fit(far, 2, start="nowhere")
    assert register(best_draw) is best_draw

    class Other(RegionStart):
        pass

    with pytest.raises(ValueError, match="There is a start 'region' already: give Other another name"):
        register(Other())
    assert all(isinstance(start, AbstractStart) and start.name == name for name, start in STARTS.items())
