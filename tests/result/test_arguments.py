"""Arguments of a result's methods that cannot be used: one sentence each."""

import dataclasses
import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import natmix
from natmix import Mixture
from natmix.diagnostics import agreement

jax.config.update("jax_enable_x64", True)

X = np.linspace(0, 1, 5)
QUICK: dict[str, Any] = {"algorithm": "semydux", "max_iterations": 5, "progress": False, "elbo_samples": 300}


def regression(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    mean = numpyro.deterministic("mean", slope * x)
    numpyro.factor("penalty", -(slope**2))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


@pytest.fixture(scope="module")
def plain():
    return natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 2, **QUICK)


@pytest.fixture(scope="module")
def lines():
    return natmix.fit(regression, model_args=(X, 2 * X), **QUICK)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.sample(2.5), "n must be a whole number of at least 1, got 2.5"),
        (lambda r: r.sample(0), "at least 1, got 0"),
        (lambda r: r.sample(True), "got True"),
        (lambda r: r.sample(seed=None), "A seed is a whole number (or a JAX key), got None"),
        (lambda r: r.sample(seed=1.5), "got 1.5"),
        (lambda r: r.sample(seed=2**40), "from 0 to 2**32 - 1"),
        (lambda r: r.resample(10.5), "n must be a whole number of at least 1, got 10.5"),
        (lambda r: r.resample(0), "got 0"),
        (lambda r: r.resample(5, pool=9.5), "pool must be a whole number"),
        (lambda r: r.resample(5, pool=4), "a pool of at least n samples, got 5 and 4"),
        (lambda r: r.resample(5, seed=None), "seed must be a whole number"),
        (lambda r: r.to_pandas(0), "n must be a whole number of at least 2, got 0"),
        (lambda r: r.sampler_start(0), "chains must be a whole number"),
        (lambda r: r.diagnose(2.5), "samples must be a whole number"),
        (lambda r: r.diagnose(search=2.5), "search is a number of L-BFGS runs"),
        (lambda r: r.diagnose(search=-1), "search is a number of L-BFGS runs"),
        (lambda r: r.bridge(np.zeros((20, 2)), samples=-1), "samples must be a whole number"),
        (lambda r: r.plot(samples=0), "samples must be a whole number of at least 2, got 0"),
        (lambda r: r.plot(log_evidence="high"), "log_evidence must be a number"),
        (lambda r: r.predict(5), "needs a NumPyro or PyMC model"),
        (lambda r: agreement(r), "given as a list: agreement([one, other]), got Result"),
        (lambda r: agreement([r.mixture, r.mixture]), "got Mixture; to compare mixtures use one.kl(other)"),
        (lambda r: agreement([r]), "at least two results"),
        (lambda r: agreement([r, r], samples=0), "samples must be a whole number"),
        (lambda r: agreement([r, r], seed=None), "seed must be a whole number"),
    ],
)
def test_plain_results(plain, call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call(plain)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.predict(0), "n must be a whole number of at least 1"),
        (lambda r: r.predict(5, seed=None), "seed must be a whole number"),
        (
            lambda r: r.predict(5, y=None),
            "missing a required argument: 'x': give the arguments of model(x, y=None)",
        ),
        (lambda r: r.predict(5, 3), "cannot be called with the arguments of predict(): TypeError"),
        (lambda r: r.predict(5, X, X), "the model draws nothing"),
        (lambda r: r.bridge({"slope": np.zeros(20), "scale": np.ones(19)}), "slope has 20 and scale 19"),
        (lambda r: r.bridge({"slope": np.zeros(20)}), "do not have the model's variable 'scale'"),
        (lambda r: r.bridge(None), "Give the draws by name, as a dictionary with slope, scale"),
    ],
)
def test_models(lines, call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call(lines)


def test_summaries_have_what_is_inferred_first_and_the_components_shares(lines):
    names = ["slope", "scale", *(f"mean[{i}]" for i in range(5))]
    assert list(lines.to_pandas(9).index) == names
    rows = lines.summary().splitlines()
    first = next(i for i, row in enumerate(rows) if row.startswith("  variable"))
    assert [row.split()[0] for row in rows[first + 1 :][:7]] == names
    two = Mixture.full([0.7, 0.3], np.zeros((2, 2)), np.stack([np.eye(2)] * 2))
    assert "  weights      70%, 30%\n" in dataclasses.replace(lines, mixture=two).summary()
    counts = lines.counts
    assert f"({counts.first_evaluations:,} to initialise, " in lines.summary()
    assert lines.trajectory["total_evaluations"][0] > counts.start_evaluations > 0


def test_predictions_and_nothing_else(lines):
    """Data of the fit drawn anew, or for new inputs, where the deterministics are new too."""
    again = lines.predict(4000, seed=3)
    assert {name: value.shape for name, value in again.items()} == {"y": (4000, 5)}
    x = lines.sample(4000, seed=3)
    residual = (again["y"] - x["mean"]) / x["scale"][:, None]
    assert residual.std() == pytest.approx(1, abs=0.02)
    assert residual.mean() == pytest.approx(0, abs=0.03)
    ahead = lines.predict(7, np.array([10.0, 20]), seed=3)
    assert {name: value.shape for name, value in ahead.items()} == {"y": (7, 2), "mean": (7, 2)}
    np.testing.assert_allclose(ahead["mean"][:, 1], 20 * lines.sample(7, seed=3)["slope"], rtol=1e-6)


def test_estimates_and_other_names_in_pictures(plain):
    pytest.importorskip("matplotlib").use("Agg")
    axes = plain.plot(log_evidence=plain.diagnosis.log_evidence, labels=[1, 2])
    assert axes[1, 0].get_xlabel() == "1"


def test_results_are_themselves_and_nothing_else(plain, lines):
    assert plain == plain
    assert plain != lines
    assert len({plain, lines}) == 2


def test_few_draws_are_corrected_from_a_pool_that_can_be_judged(plain):
    """Weights of a mixture twice as wide are fine, whatever chance says of fifteen."""
    half = natmix.JaxTarget(lambda x: -0.5 * jnp.sum(x**2) * 4, 2)
    wide = dataclasses.replace(plain, target=half)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wide.resample(3).shape == (3, 2)
    with pytest.warns(UserWarning, match="A pool of 15 is too small to judge .* use at least 1000 samples"):
        wide.resample(3, pool=15)


def test_resampling_counts_what_it_leaves_out(plain):
    """Half of the samples are NaN: a warning says how many, and none is drawn."""
    broken = natmix.JaxTarget(lambda x: jnp.where(x[0] > 0, -0.5 * jnp.sum(x**2), jnp.nan), 2)
    with pytest.warns(UserWarning, match=r"NaN or \+inf at (9[0-9]\d|10\d\d) of 2000 samples"):
        x = dataclasses.replace(plain, target=broken).resample(400)
    assert x[:, 0].min() > 0
