"""Models, data and arguments that do not fit together: one sentence each, or a note."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import natmix
from natmix import Mixture
from natmix.models import NumpyroModel

jax.config.update("jax_enable_x64", True)

X = np.linspace(0, 1, 20)


def line(x, y=None, scale=5.0):
    slope = numpyro.sample("slope", dist.Normal(0.0, scale))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def in_plate(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def several(x, y):
    slopes = numpyro.sample("slopes", dist.Normal(jnp.zeros(7), 1.0))
    numpyro.sample("y", dist.Normal(slopes * x, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (
            line,
            {"model_args": (X,), "model_kwargs": {"Y": X}},
            "unexpected keyword argument 'Y'. Did you mean 'y'",
        ),
        (line, {"model_args": (X,), "model_kwargs": {"scael": 2}}, "Did you mean 'scale'?"),
        (
            line,
            {"model_kwargs": {"y": X}},
            "model(x, y=None, scale=5.0), and model_args and model_kwargs do not",
        ),
        (line, {}, "missing a required argument: 'x'"),
        (line, {"model_args": (X, X, 1, 2)}, "too many positional arguments."),
        (
            line,
            {"model_args": (X, X[:7])},
            "The data 'y' have the shape [7], but the model's distribution of them [20]",
        ),
        (in_plate, {"model_args": (X, X[:7])}, "raised ValueError at its variable 'y': Incompatible shapes"),
        (
            several,
            {"model_args": (X, X)},
            "cannot be called with its arguments: it raised TypeError: mul got incompatible",
        ),
    ],
)
def test_arguments_that_do_not_fit_the_model(model, arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        natmix.fit(model, **arguments)


def test_natmix_does_not_enumerate():
    def model():
        z = numpyro.sample("z", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(z, 1.0), obs=0.3)

    with pytest.raises(ValueError, match=r"'z' is discrete.*natmix does not enumerate: sum it out"):
        natmix.fit(model)


def test_a_model_without_data_is_its_prior():
    remark = NumpyroModel(line, (X,)).remark
    assert remark.startswith("The model observes nothing (latent: slope, y): this is its prior.")
    assert not NumpyroModel(line, (X, X)).remark

    def by_factor():
        numpyro.factor("likelihood", -(numpyro.sample("a", dist.Normal()) ** 2))

    assert not NumpyroModel(by_factor).remark

    def forgotten(y=None):
        numpyro.sample("y", dist.Normal(numpyro.sample("a", dist.Normal()), 1.0), obs=y)

    result = natmix.fit(forgotten, max_iterations=3, elbo_samples=100, progress=False)
    assert any("Were data meant to be given?" in note for note in result.notes)
    assert "note: The model observes nothing (latent: a, y)" in result.summary()


def test_pymc_models_without_data_and_with_infinite_ones():
    pm = pytest.importorskip("pymc")
    with pm.Model() as nothing:
        pm.Normal("a")
    assert "(latent: a)" in natmix.models.PymcModel(nothing).remark
    with nothing:
        pm.Potential("likelihood", -(nothing["a"] ** 2))
    assert not natmix.models.PymcModel(nothing).remark
    with pm.Model() as infinite:
        pm.Normal("y", pm.Normal("a"), 1.0, observed=np.array([np.inf, 1.0]))
    with pytest.raises(ValueError, match="the data 'y' hold NaN or infinity"):
        natmix.fit(infinite)


def test_a_frozen_mixture_draws_in_any_shape():
    frozen = Mixture.full([1.0], np.zeros((1, 2)), np.eye(2)[None]).frozen()
    assert frozen.rvs((2, 3)).shape == (2, 3, 2)
    np.testing.assert_array_equal(
        frozen.rvs((2, 3), random_state=1).reshape(6, 2), frozen.rvs(6, random_state=1)
    )
    assert frozen.rvs(1).shape == (2,)
    with pytest.raises(ValueError, match="size must be a whole number"):
        frozen.rvs((2, 0.5))  # type: ignore[arg-type]
