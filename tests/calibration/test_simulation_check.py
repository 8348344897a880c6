"""Ranks of true parameters: exact posteriors pass, narrow and biased ones are flagged."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from natmix.calibration import SimulationCheck, simulation_check
from natmix.calibration.uniformity import anderson_darling, holm, ranks_among, symmetry, width

numpyro = pytest.importorskip("numpyro")
dist = numpyro.distributions
OBSERVATIONS = 3


# A Gaussian mean with a Gaussian prior, whose posterior is known -----------------------------------


def simulate(key):
    a, b = jax.random.split(key)
    theta = jax.random.normal(a, (2,))
    return {"theta": theta}, {"y": theta + jax.random.normal(b, (OBSERVATIONS, 2))}


def log_density(parameters, data):
    theta = parameters["theta"]
    return -0.5 * jnp.sum(theta**2) - 0.5 * jnp.sum((data["y"] - theta) ** 2)


@dataclasses.dataclass
class Known:
    """The exact posterior, shifted and scaled."""

    y: np.ndarray
    shift: float = 0.0
    scale: float = 1.0
    interrupted: bool = False

    def sample(self, n, *, seed):
        precision = 1 + OBSERVATIONS
        mean = self.y.sum(axis=0) / precision
        noise = np.random.default_rng(seed).standard_normal((n, 2))
        return {"theta": mean + (self.shift + self.scale * noise) / np.sqrt(precision)}


def check(fits=200, shift=0.0, scale=1.0, **options):
    def exact(model, seed):
        return Known(model.observed["y"], shift, scale)

    return simulation_check(log_density, simulate=simulate, fits=fits, fit=exact, **options)


def test_an_exact_posterior_gives_uniform_ranks():
    found = check()
    assert found.names == ("theta[0]", "theta[1]")
    assert found.ranks.shape == (200, 2)
    assert found.ranks.min() >= 0
    assert found.ranks.max() <= 999
    assert found.passed
    assert "NOTHING WRONG FOUND with 2 parameters in 200 simulations" in str(found)
    for p, u in zip(found.parameters, found.pit_values.T, strict=True):
        assert stats.kstest(u, "uniform").pvalue > 0.01
        assert abs(p.bias.value) < 3.5 * p.bias.standard_error
        assert abs(p.spread.value - 1) < 3.5 * p.spread.standard_error


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scale": 0.6}, "too narrow"),
        ({"scale": 2.0}, "too wide"),
        ({"shift": -0.6}, "too low"),
        ({"shift": 0.6}, "too high"),
    ],
)
def test_a_wrong_posterior_is_flagged_and_named(wrong, words):
    found = check(fits=100, **wrong)
    assert len(found.flagged) == 2
    assert "2 WRONG of 2 parameters" in str(found)
    assert words in str(found)
    for p in found.parameters:  # the numbers behind the words are those put in
        assert p.bias.value == pytest.approx(-wrong.get("shift", 0.0), abs=4 * p.bias.standard_error)
        assert p.spread.value == pytest.approx(1 / wrong.get("scale", 1.0), rel=0.3)


# The tests ----------------------------------------------------------------------------------------


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


# When something goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [True, False])
def test_an_interrupt_keeps_what_is_there(raised):
    seen = []

    def fit(model, seed):
        seen.append(seed)
        if len(seen) == 8 and raised:
            raise KeyboardInterrupt
        return Known(model.observed["y"], interrupted=len(seen) == 8)

    found = simulation_check(log_density, simulate=simulate, fits=30, fit=fit)
    assert found.fits == 7
    assert "Ended after 7 of 30" in str(found)


def test_an_interrupt_before_the_first_fit_is_one():
    def fit(model, seed):
        return Known(model.observed["y"], interrupted=True)

    with pytest.raises(KeyboardInterrupt):
        simulation_check(log_density, simulate=simulate, fit=fit)


def test_fits_start_at_the_prior_and_not_at_the_truth():
    regions = []

    def fit(model, seed):
        regions.append(model.start(jax.random.key(seed)))
        return Known(model.observed["y"])

    simulation_check(log_density, simulate=simulate, fit=fit, fits=100)
    for region in regions:
        np.testing.assert_array_equal(region.mean, regions[0].mean)
    assert regions[0].mean == pytest.approx(0, abs=0.4)
    assert regions[0].scale == pytest.approx(1, abs=0.35)


def test_failures_are_counted_and_told():
    seen = []

    def fit(model, seed):
        seen.append(seed)
        if len(seen) % 4 == 0:
            raise RuntimeError("no luck")
        return Known(model.observed["y"] * (np.nan if len(seen) % 4 == 1 else 1.0))

    found = simulation_check(log_density, simulate=simulate, fits=20, fit=fit)
    assert found.fits == 10
    assert len(found.failures) == 10
    assert "10 failed fits left out" in str(found)
    assert any("no luck" in f for f in found.failures)


def test_hopeless_cases_end_soon():
    def fit(model, seed):
        raise RuntimeError("never")

    with pytest.raises(ValueError, match=r"No simulation could be fitted.*never"):
        simulation_check(log_density, simulate=simulate, fit=fit)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fits": 2}, "fits must be a whole number of at least 5"),
        ({"draws": 0}, "draws must be"),
        ({"level": 5}, "level must lie between 0 and 1"),
        ({"seed": -1}, "seed must be"),
        ({"observed": "y"}, "observed holds names"),
        ({"model_args": ()}, "does not take model_args"),
        ({"max_evalutions": 3}, "did you mean 'max_evaluations'"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, words):
    with pytest.raises(ValueError, match=words):
        simulation_check(log_density, simulate=simulate, **arguments)


def test_a_simulator_that_returns_something_else_gets_a_sentence():
    with pytest.raises(ValueError, match="must return a pair"):
        simulation_check(log_density, simulate=lambda key: jnp.zeros(2))
    with pytest.raises(ValueError, match="Give a NumPyro or PyMC model"):
        simulation_check(3)


# Models and real fits -----------------------------------------------------------------------------

CALLS = []


def model(y=None):
    CALLS.append(1)
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.5))
    numpyro.deterministic("double", 2 * mu)
    numpyro.sample("y", dist.Normal(mu, sigma).expand([6]), obs=y)


def test_numpyro_models_are_simulated_and_fitted_without_compiling_again():
    from natmix.fit import fit as natmix_fit

    traced = []

    def fit(model, seed, **options):
        before = len(CALLS)
        result = natmix_fit(model, seed=seed, progress=False, **options)
        traced.append(len(CALLS) - before)
        return result

    found = simulation_check(
        model, model_args=(jnp.zeros(6),), fits=12, fit=fit, seed=1, max_evaluations=4000
    )
    assert set(found.names) == {"mu", "sigma", "double"}
    assert found.passed
    ranks = dict(zip(found.names, found.ranks.T, strict=True))
    np.testing.assert_array_equal(ranks["mu"], ranks["double"])
    assert np.isfinite(found.k_hats).all()
    assert max(traced[5:]) <= 6 < traced[0]  # looking at the target's kind, not compiling


def test_corrected_draws_are_checked_on_request():
    class Corrected(Known):
        def sample(self, n, *, seed):
            raise AssertionError("not these")

        def resample(self, n, *, seed):
            return Known.sample(self, n, seed=seed)

    def fit(model, seed):
        return Corrected(model.observed["y"])

    assert simulation_check(log_density, simulate=simulate, fits=20, fit=fit, corrected=True).fits == 20


def test_functions_with_bounds_are_fitted():
    def simulate(key):
        a, b = jax.random.split(key)
        p = jax.random.beta(a, 2.0, 2.0)
        return {"p": p}, jax.random.binomial(b, 10.0, p)

    def log_density(parameters, successes):
        p = parameters["p"]
        return (1 + successes) * jnp.log(p) + (11 - successes) * jnp.log1p(-p)

    found = simulation_check(
        log_density,
        simulate=simulate,
        bounds={"p": (0, 1)},
        fits=10,
        algorithm="semtron",
        max_evaluations=2000,
        elbo_samples=200,
    )
    assert found.names == ("p",)
    assert not found.failures
    assert found.passed
    exact = []
    for i, one in enumerate(jax.random.split(jax.random.key(0), 10)):
        truth, successes = simulate(one)
        exact.append(stats.beta(2 + int(successes), 12 - int(successes)).cdf(float(truth["p"])))
        assert found.pit_values[i, 0] == pytest.approx(exact[-1], abs=0.12)


def test_the_density_of_simulated_data_is_the_model_s():
    from natmix.calibration.simulators import NumpyroSimulator
    from natmix.models import NumpyroModel

    for simulated in NumpyroSimulator(model, (jnp.zeros(6),)).simulations(jax.random.key(3), 3):
        plain = NumpyroModel(model, (jnp.asarray(simulated.model.observed["y"]),))
        x = jnp.array([[0.3, -0.7], [1.0, 2.0]])
        for row in x:
            assert float(simulated.model.log_density(row)) == pytest.approx(float(plain.log_density(row)))
        for name, value in plain.constrain(x).items():
            np.testing.assert_allclose(simulated.model.constrain(x)[name], value)
        assert set(simulated.truth) == {"mu", "sigma", "double"}


def test_simulated_data_come_from_the_model():
    from natmix.calibration.simulators import NumpyroSimulator

    pairs = [
        (float(s.truth["mu"]), float(s.truth["sigma"]), s.model.observed["y"])
        for s in NumpyroSimulator(model, (jnp.zeros(6),)).simulations(jax.random.key(0), 300)
    ]
    mu = [p[0] for p in pairs]
    z = np.concatenate([(y - m) / s for m, s, y in pairs])
    assert stats.kstest(mu, "norm").pvalue > 1e-3
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_models_whose_data_cannot_be_drawn_get_a_sentence():
    def factor(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        numpyro.factor("penalty", -(mu**2))
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    def improper(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    with pytest.raises(ValueError, match="a factor 'penalty'"):
        simulation_check(factor, model_args=(1.0,))
    with pytest.raises(ValueError, match="improper"):
        simulation_check(improper, model_args=(1.0,))
    with pytest.raises(ValueError, match="has no observed variable"):
        simulation_check(model)
    with pytest.raises(ValueError, match="no variable 'z'"):
        simulation_check(model, observed=["z"])


def test_pymc_models_are_simulated():
    pymc = pytest.importorskip("pymc")
    from natmix.calibration.simulators import PymcSimulator
    from natmix.models import PymcModel

    def build(y, k):
        with pymc.Model() as built:
            mu = pymc.Normal("mu", 0, 2)
            sigma = pymc.HalfNormal("sigma", 1.0)
            pymc.Normal("y", mu, sigma, observed=y)
            pymc.Poisson("k", pymc.math.exp(mu / 4), observed=k)
        return built

    x = jnp.array([0.3, -0.2])
    simulations = PymcSimulator(build(np.zeros(4), np.array([1, 2]))).simulations(jax.random.key(0), 2)
    for simulated in simulations:
        plain = PymcModel(build(simulated.model.observed["y"], simulated.model.observed["k"]))
        assert float(simulated.model.log_density(x)) == pytest.approx(float(plain.log_density(x)))
        assert set(simulated.truth) == {"mu", "sigma"}
    with pymc.Model() as empty:
        pymc.Normal("mu", 0, 2)
    with pytest.raises(ValueError, match="has no observed variable"):
        simulation_check(empty)


def test_pymc_data_with_gaps_give_no_false_alarm():
    """PyMC's joined variable holds the data of the model, not those simulated: it is no parameter."""
    pymc = pytest.importorskip("pymc")
    from natmix.calibration.simulators import PymcSimulator

    y = np.array([1.0, np.nan, 0.5, np.nan, 1.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pymc.Model() as model:
            mu = pymc.Normal("mu", 0, 1)
            whole = pymc.Normal("y", mu, 1, observed=y)
            pymc.Deterministic("distance", whole.sum() - 5 * mu)

    class Exact:
        """The posterior in closed form: given n data, mu ~ N(sum / (n + 1), 1 / (n + 1))."""

        def __init__(self, model):
            self.model, self.data = model, model.observed["y_observed"]

        def sample(self, n, seed):
            rng = np.random.default_rng(seed)
            more = len(self.data) + 1
            mu = self.data.sum() / more + rng.normal(size=(n, 1)) / np.sqrt(more)
            return self.model.constrain(np.hstack([mu, mu + rng.normal(size=(n, 2))]))

    found = simulation_check(model, fits=60, draws=199, fit=lambda model, seed: Exact(model), progress=False)
    assert found.names == ("distance", "mu", "y_unobserved[0]", "y_unobserved[1]")
    assert found.passed, str(found)
    (one,) = PymcSimulator(model).simulations(jax.random.key(0), 1)
    x = np.array([[0.3, 1.0, -2.0]])
    right = one.model.observed["y_observed"].sum() + x[0, 1:].sum() - 5 * x[0, 0]
    assert one.model.constrain(x)["distance"][0] == pytest.approx(right)


# The picture --------------------------------------------------------------------------------------


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
