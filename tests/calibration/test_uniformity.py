"""The tests of uniform ranks: their levels, what they see, and the histograms."""

import numpy as np
import pytest
from scipy import stats

from natmix.calibration import SimulationCheck
from natmix.calibration.uniformity import anderson_darling, holm, ranks_among, symmetry, width


@pytest.mark.parametrize("shape", [1.0, 0.6])
def test_anderson_darling_s_is_scipy_s(shape):
    u = stats.beta.rvs(shape, shape, size=30, random_state=4)
    known = {"loc": 0, "scale": 1}
    theirs = stats.goodness_of_fit(stats.uniform, u, known_params=known, statistic="ad", random_state=1)
    ours = anderson_darling(u)
    assert ours.statistic == pytest.approx(theirs.statistic)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.02)


def test_anderson_darling_s_p_values_are_those_of_the_tables():
    from natmix.calibration.uniformity import anderson_darling_tail

    for critical, level in ((1.933, 0.1), (2.492, 0.05), (3.857, 0.01), (5.97, 0.001)):
        assert anderson_darling_tail(critical) == pytest.approx(level, rel=0.03)
    grid = [anderson_darling_tail(z) for z in np.linspace(0, 60, 2000)]
    assert np.all(np.diff(grid) <= 1e-4)
    assert 0 < grid[-1] < 1e-20


def test_symmetry_keeps_its_level_and_sees_a_shift():
    rng = np.random.default_rng(0)
    even = [symmetry(rng.random(20)).p_value for _ in range(1000)]
    assert np.mean(np.array(even) < 0.05) == pytest.approx(0.05, abs=0.025)
    u_shaped = stats.beta.rvs(0.2, 0.2, size=(200, 20), random_state=1)
    assert np.mean([symmetry(u).p_value < 0.05 for u in u_shaped]) < 0.12
    assert symmetry(stats.beta.rvs(2, 1, size=50, random_state=2)).p_value < 1e-3


def test_width_keeps_its_level_and_tests_width_alone():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1000, 20))
    for shift in (0.0, 2.0):
        right = np.array([width(stats.norm.cdf(row + shift)).p_value for row in z])
        assert stats.kstest(right, "uniform").pvalue > 1e-3
    narrow = stats.norm.cdf(2 * z[0])
    assert width(narrow).statistic == pytest.approx(19 * np.var(2 * z[0], ddof=1))
    assert width(narrow).p_value == pytest.approx(2 * stats.chi2(19).sf(19 * np.var(2 * z[0], ddof=1)))


def test_holm_rejects_step_by_step():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_array_equal(holm(p, 0.05), [True, False, False, True])
    np.testing.assert_array_equal(holm(np.array([0.04, 0.6, 0.001]), 0.05), [False, False, True])
    assert not holm(np.array([0.02, 0.02, 0.02]), 0.05).any()


def test_equal_draws_share_ranks_evenly():
    rng = np.random.default_rng(0)
    ranks = np.array([ranks_among(np.ones(1), np.ones((4, 1)), rng)[0] for _ in range(5000)])
    np.testing.assert_allclose(np.bincount(ranks, minlength=5) / 5000, 0.2, atol=0.03)
    assert ranks_among(np.array([2.0]), np.array([[1.0], [1], [3], [2.5]]), rng)[0] == 2


def of_places(places, level=0.05):
    names = tuple(f"x[{i}]" for i in range(places.shape[1]))
    ranks = np.floor(places * 1000).astype(int)
    return SimulationCheck(names, ranks, places, 999, level, np.zeros(len(places)), (), len(places))


def test_false_alarms_are_as_rare_as_promised():
    rng = np.random.default_rng(0)
    alarms = np.mean([not of_places(rng.random((50, 4))).passed for _ in range(300)])
    assert alarms < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_the_bias_said_to_be_visible_is():
    rng = np.random.default_rng(1)
    visible = of_places(rng.random((50, 4))).visible_bias
    seen = 0
    for _ in range(200):
        z = rng.standard_normal((50, 4))
        z[:, 0] += visible
        seen += any(p.name == "x[0]" for p in of_places(stats.norm.cdf(z)).flagged)
    assert 0.7 < seen / 200 < 0.92


def test_the_width_said_to_be_visible_is():
    rng = np.random.default_rng(2)
    factor = of_places(rng.random((50, 4))).visible_spread
    seen = 0
    for _ in range(200):
        z = rng.standard_normal((50, 4))
        z[:, 0] *= factor
        seen += any(p.name == "x[0]" for p in of_places(stats.norm.cdf(z)).flagged)
    assert 0.7 < seen / 200 < 0.92


def test_other_shapes_are_flagged_too():
    z = np.where(np.random.default_rng(3).random((200, 1)) < 0.5, -1.0, 1.0)
    (p,) = of_places(stats.norm.cdf(z + 0.05 * np.random.default_rng(4).standard_normal(z.shape))).parameters
    assert p.not_uniform
    assert not p.biased


def test_histograms_of_ranks_show_counts_band_and_what_is_wrong(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    from natmix.plot.style import COMPONENT

    rng = np.random.default_rng(0)
    places = rng.random((60, 3))
    places[:, 1] = stats.beta.rvs(0.3, 0.3, size=60, random_state=0)
    found = of_places(places)
    axes = found.plot()
    assert [ax.get_title(loc="left") for ax in axes] == list(found.names)
    for ax, u in zip(axes, places.T, strict=True):
        heights = [p.get_height() for p in ax.patches if p.get_width() < 1]
        np.testing.assert_allclose(heights, np.histogram(u, bins=12, range=(0, 1))[0])
    assert axes[1].title.get_text() == ""
    assert axes[1]._left_title.get_color() == COMPONENT
    assert axes[0]._left_title.get_color() != COMPONENT
    axes[0].figure.savefig(tmp_path / "ranks.png")
    assert len(found.plot(parameters=["x[2]"], bars=6)) == 1
    with pytest.raises(ValueError, match="no ranks of 'y'"):
        found.plot(parameters=["y"])
    with pytest.raises(ValueError, match="bars must be"):
        found.plot(bars=1)
    assert len(of_places(rng.random((30, 25))).plot()) == 20
    plt.close("all")
