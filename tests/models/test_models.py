"""Models as targets: bounds, pytrees and NumPyro, against closed forms and the libraries themselves."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from quick_fits import LEAST
from scipy import integrate, special, stats

import natmix
from natmix.models import NumpyroModel, PytreeModel, as_model
from natmix.models.base import coordinate_names
from natmix.models.bounds import Bounds

jax.config.update("jax_enable_x64", True)

QUICK: dict[str, Any] = {"max_iterations": 150, "progress": False}
PLAIN: dict[str, Any] = {"algorithm": "semtron", "start": "region", **QUICK}
"""Without a search for components, which takes longest to compile."""

# Bounds ---------------------------------------------------------------------------------------------

SIDES = Bounds(np.array([0.0, -2.0, 1.0, -np.inf, -np.inf]), np.array([1.0, 5.0, np.inf, 3.0, np.inf]))


def test_bounded_variables_stay_inside_and_come_back():
    z = np.random.default_rng(0).normal(size=(50, 5)) * 3
    x = np.asarray(jax.vmap(SIDES.constrain)(jnp.asarray(z)))
    assert np.all((x > SIDES.low) & (x < SIDES.high))
    np.testing.assert_allclose(SIDES.unconstrain(x), z, atol=1e-7)


def test_jacobians_are_those_of_the_transformation():
    z = jnp.asarray([0.3, -1.2, 0.7, 2.0, -3.0])
    slopes = np.diagonal(jax.jacobian(SIDES.constrain)(z))
    assert float(SIDES.log_jacobian(z)) == pytest.approx(np.sum(np.log(np.abs(slopes))))
    assert np.all(np.isfinite(jax.grad(SIDES.log_jacobian)(z)))


@pytest.mark.parametrize("far", [-1e4, 1e4])
def test_gradients_are_finite_however_far_a_variable_without_bounds_lies(far):
    z = jnp.full(5, 0.5).at[4].set(far)
    slopes = jax.jacobian(SIDES.constrain)(z)
    assert np.all(np.isfinite(slopes))
    assert slopes[4, 4] == 1


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((1, 0), "must be below"),
        (3, "must be a pair"),
        (("a", 1), "must be a number or an array"),
        (([0, 0, 0], 1), "array of shape"),
    ],
)
def test_bounds_that_make_no_sense(bounds, words):
    with pytest.raises(ValueError, match=words):
        natmix.fit(lambda p: -jnp.sum(p["x"]), position={"x": jnp.ones(2)}, bounds={"x": bounds})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"position": {"x": 2.0}, "bounds": {"x": (0, 1)}}, r"x is 2, not in \(0, 1\)"),
        ({"position": {"x": 0.5}, "bounds": {"y": (0, 1)}}, "the variables are x"),
        ({"position": {"x": 0.5, "y": 1.0}, "bounds": (0, 1)}, "by name"),
        (
            {"bounds": {"y": (0, 1)}, "dim": 2},
            "dim=2 was given, but bounds by name belong to numbers, 1 here",
        ),
        ({"bounds": {"y": 1}}, "The bounds of y must be a pair"),
        ({"bounds": {"y": (1, 0)}}, "The lower bound of y must be below"),
        ({"bounds": ([0, 0], [1, 1]), "dim": 3}, r"dim=3 was given, but the bounds have the shape \[2\]"),
        ({"position": {"a": [0.0, np.nan]}}, r"must hold finite numbers, but a/1 is nan"),
        ({"bounds": (0, 1)}, "Give dim"),
        ({"position": {}}, "empty"),
        ({"position": {"x": jnp.array([True])}}, "real numbers"),
        ({"position": {"x": 0.5}, "dim": 3}, "dim=3 was given, but the model has 1"),
        ({"position": {"x": 0.5}, "model_args": ()}, "leave position out"),
    ],
)
def test_positions_that_make_no_sense(arguments, words):
    with pytest.raises(ValueError, match=words):
        natmix.fit(lambda p: 0.0, **arguments)


def test_bounds_by_name_are_those_by_number():
    found = as_model(
        lambda p: -p["rate"] - p["share"], None, None, None, None, {"rate": (0, None), "share": (0, 1)}
    )
    assert found.coordinates == ("rate", "share")
    assert found.first == {"rate": 1.0, "share": 0.5}  # type: ignore[attr-defined]
    # At zero rate is 1 and share 1/2, with the Jacobians 1 and 1/4.
    assert float(found.log_density(jnp.zeros(2))) == pytest.approx(-1.5 + np.log(1 / 4))


def test_entries_without_bounds_may_be_none():
    result = natmix.fit(lambda x: -jnp.sum(x**2), bounds=([0, None, None], [1, 5, None]), **LEAST)
    x = result.sample(200)
    assert np.all((x[:, 0] > 0) & (x[:, 0] < 1) & (x[:, 1] < 5))
    assert x[:, 1].min() < 0
    assert x[:, 2].min() < 0 < x[:, 2].max()


def test_a_function_outside_jax_may_have_bounds():
    def outside(x):
        return -0.5 * ((float(x[0]) - 0.3) / 0.1) ** 2

    few: dict[str, Any] = {"sample_selector": {"desired_samples": 40}, "elbo_samples": 100}
    result = natmix.fit(
        outside, dim=1, bounds=(0, 1), algorithm="zemtron", max_iterations=20, progress=False, **few
    )
    assert result.settings["start"] == "region"
    assert result.sample(2000).mean() == pytest.approx(0.3, abs=0.02)
    with pytest.raises(ValueError, match="the target has none"):
        natmix.fit(outside, dim=1, bounds=(0, 1), start="pathfinder", progress=False)


def test_a_summary_shows_what_lies_far_from_zero():
    result = natmix.fit(
        PytreeModel(lambda p: -0.5 * ((p["x"] - 20_000) / 0.5) ** 2, {"x": 20_000.0}), **LEAST
    )
    row = next(line for line in result.summary().splitlines() if line.startswith("  x "))
    assert all(abs(float(number) - 20_000) < 2 for number in np.array(row.split())[[1, 3, 4]])
    assert len({row.split()[i] for i in (1, 3, 4)}) == 3


def test_long_names_are_shown_in_full():
    position = {"velocity_of_the_left_wheel": jnp.zeros(2)}
    model = PytreeModel(lambda p: -jnp.sum(position_norm(p)), position)
    result = natmix.fit(model, **LEAST)
    assert "velocity_of_the_left_wheel[0]" in result.summary()
    assert "velocity_of_the_left_wheel[1]" in result.summary()


def position_norm(p):
    return sum(leaf**2 for leaf in jax.tree.leaves(p))


# Pytrees --------------------------------------------------------------------------------------------


def test_a_beta_and_an_exponential_have_their_evidence_and_moments():
    """b^(a-1) (1-b)^(c-1) on (0, 1) integrates to B(a, c); exp(-2 t) on (0, inf) to 1/2."""

    def log_density(p):
        return 2 * jnp.log(p["b"]) + 4 * jnp.log1p(-p["b"]) - 2 * p["t"]["u"]

    result = natmix.fit(
        log_density,
        position={"b": 0.5, "t": {"u": 1.0}},
        bounds={"b": (0, 1), "t/u": (0, None)},
        seed=1,
        **PLAIN | {"max_iterations": 400, "init_components": 8},
    )
    evidence = result.diagnosis.log_evidence
    assert evidence.value == pytest.approx(special.betaln(3, 5) - np.log(2), abs=0.02)
    assert result.diagnosis.trusted, result.summary()
    x = result.sample(20_000)
    assert set(x) == {"b", "t"}
    assert x["b"].shape == x["t"]["u"].shape == (20_000,)
    assert x["b"].mean() == pytest.approx(3 / 8, abs=0.01)
    assert x["t"]["u"].std() == pytest.approx(0.5, abs=0.03)
    assert "t/u" in result.summary()


def test_a_bounded_vector_needs_no_names():
    result = natmix.fit(lambda x: jnp.sum(jnp.log(x)), 2, bounds=(0, 1), **PLAIN)
    assert result.diagnosis.log_evidence.value == pytest.approx(2 * np.log(0.5), abs=0.02)
    x = result.sample(1000)
    assert x.shape == (1000, 2)
    assert 0 < x.min() < x.max() < 1


def test_any_pytree_is_a_position():
    model = PytreeModel(lambda p: -jnp.sum(p[0] ** 2) - p[1]["k"] ** 2, (np.zeros((2, 3)), {"k": 1}))
    assert model.dim == 7
    assert model.coordinates == ("0[0,0]", "0[0,1]", "0[0,2]", "0[1,0]", "0[1,1]", "0[1,2]", "1/k")
    back = model.constrain(np.arange(14.0).reshape(2, 7))
    np.testing.assert_array_equal(back[0][1], np.arange(7.0, 13).reshape(2, 3))
    np.testing.assert_array_equal(back[1]["k"], [6, 13])
    assert float(model.log_density(jnp.arange(7.0))) == -np.sum(np.arange(7.0) ** 2)
    np.testing.assert_array_equal(model.start(jax.random.key(0)).mean, [0, 0, 0, 0, 0, 0, 1])


def test_names_of_coordinates():
    assert coordinate_names("a", ()) == ["a"]
    assert coordinate_names("a", (2, 2)) == ["a[0,0]", "a[0,1]", "a[1,0]", "a[1,1]"]


# NumPyro --------------------------------------------------------------------------------------------


def conjugate(y=None, n=5):
    mu = numpyro.sample("mu", dist.Normal(1.0, 2.0))
    numpyro.deterministic("twice", 2 * mu)
    with numpyro.plate("data", n):
        numpyro.sample("y", dist.Normal(mu, 1.5), obs=y)


def scales(y=None):
    s = numpyro.sample("s", dist.HalfNormal(2.0))
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("y", dist.Normal(p[0], s), obs=y)


Y = np.array([0.3, 1.8, 2.2, -0.5, 1.1])


def test_a_conjugate_model_has_its_posterior_and_evidence():
    result = natmix.fit(conjugate, model_kwargs={"y": Y}, **QUICK)
    precision = 1 / 4 + 5 / 1.5**2
    mean = (1 / 4 + Y.sum() / 1.5**2) / precision
    x = result.sample(20_000)
    assert x["mu"].mean() == pytest.approx(mean, abs=0.02)
    assert x["mu"].std() == pytest.approx(precision**-0.5, rel=0.03)
    np.testing.assert_allclose(x["twice"], 2 * x["mu"])
    covariance = 4 * np.ones((5, 5)) + 1.5**2 * np.eye(5)
    evidence = stats.multivariate_normal(np.ones(5), covariance).logpdf(Y)
    assert result.diagnosis.log_evidence.value == pytest.approx(evidence, abs=0.01)
    ahead = result.predict(5000, n=2)
    assert ahead["y"].shape == (5000, 2)
    assert ahead["y"].std() == pytest.approx(np.sqrt(1.5**2 + 1 / precision), rel=0.05)
    corrected = result.resample(2000)
    assert set(corrected) == {"mu", "twice"}


def test_a_model_of_nothing_but_keyword_arguments_is_recognised():
    def prior_only():
        numpyro.sample("x", dist.Gamma(3.0, 2.0))

    result = natmix.fit(prior_only, init_components=4, **PLAIN)
    assert result.diagnosis.log_evidence.value == pytest.approx(0, abs=0.02)
    assert result.sample(20_000)["x"].mean() == pytest.approx(1.5, abs=0.04)


def test_unconstrained_densities_are_those_of_numpyro():
    model = NumpyroModel(scales, kwargs={"y": 0.4})
    assert model.dim == 3  # a scale, and a simplex of three
    assert model.coordinates == ("p[0]", "p[1]", "s")
    x = jax.random.normal(jax.random.key(1), (4, 3))
    values = model.constrain(x)
    np.testing.assert_allclose(values["p"].sum(axis=1), 1)
    for row, p, s in zip(x, values["p"], values["s"], strict=True):
        density = numpyro.infer.util.log_density(scales, (), {"y": 0.4}, {"p": p, "s": s})[0]
        z = {"p": row[:2], "s": row[2]}
        jacobian = sum(
            dist.transforms.biject_to(d.support).log_abs_det_jacobian(z[k], v)
            for k, d, v in (("p", dist.Dirichlet(jnp.ones(3)), p), ("s", dist.HalfNormal(2.0), s))
        )
        assert float(model.log_density(row)) == pytest.approx(float(density + jacobian), abs=1e-6)


def test_the_start_is_the_prior_in_unconstrained_coordinates():
    start = NumpyroModel(conjugate, kwargs={"y": Y}).start(jax.random.key(0))
    assert start.mean[0] == pytest.approx(1, abs=0.4)
    assert start.scale[0] == pytest.approx(2, rel=0.25)

    def improper(y):
        m = numpyro.sample("m", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    model = NumpyroModel(improper, (1.3,))
    assert model.start(jax.random.key(0)) is None
    result = natmix.fit(improper, model_args=(1.3,), **PLAIN)
    assert result.sample(5000)["m"].mean() == pytest.approx(1.3, abs=0.06)


def test_models_that_cannot_be_fitted():
    def discrete(y=None):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)

    with pytest.raises(ValueError, match="'z' is discrete"):
        natmix.fit(discrete, model_kwargs={"y": 0.3})

    def nothing(y):
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    with pytest.raises(ValueError, match="no latent variable"):
        natmix.fit(nothing, model_args=(0.3,))
    with pytest.raises(ValueError, match="model_args must be a tuple"):
        natmix.fit(nothing, model_args=jnp.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model_kwargs must be a dictionary"):
        natmix.fit(nothing, model_kwargs=[1])  # type: ignore[arg-type]
    known = PytreeModel(position_norm, {"x": 0.0})
    for name, value in (("model_args", ()), ("model_kwargs", {}), ("position", 0.0), ("bounds", (0, 1))):
        with pytest.raises(ValueError, match=f"PytreeModel knows its data and variables: leave {name} out"):
            natmix.fit(known, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a function, got int"):
        natmix.fit(3, model_args=())


@pytest.mark.filterwarnings("ignore:Out-of-support values provided")  # numpyro's, beside our sentence
def test_data_without_a_finite_density_get_a_sentence():
    def count(y):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.sample("y", dist.Exponential(rate), obs=y)

    with pytest.raises(ValueError, match="the data 'y' hold NaN or infinity"):
        natmix.fit(count, model_args=(jnp.array([1.0, jnp.nan]),))


def test_a_guide_of_supports_that_move_is_refused():
    def moving(y=None):
        a = numpyro.sample("a", dist.LogNormal(0.0, 1.0))
        b = numpyro.sample("b", dist.Uniform(0.0, a))
        numpyro.sample("y", dist.Normal(b, 1.0), obs=y)

    model = NumpyroModel(moving, kwargs={"y": 1.0})
    mixture = natmix.Mixture.diagonal([1.0], [[0.0, 0.0]], [[1.0, 1.0]])
    draws = model.constrain(mixture.sample(100, key=0))
    assert np.all(draws["b"] < draws["a"])
    with pytest.raises(ValueError, match="support of the variable 'b' depends"):
        model.guide(mixture)


def test_only_models_predict(tmp_path):
    result = natmix.fit(lambda x: -jnp.sum(x**2), 2, **LEAST)
    assert result.model is None
    assert result.sample(7).shape == (7, 2)
    with pytest.raises(ValueError, match="needs a NumPyro or PyMC model"):
        result.predict(3)
    assert as_model(lambda x: 0.0, 2, None, None, None, None) is None
    assert dataclasses.replace(result, draws=None).diagnosis is None


def test_evidence_of_a_bounded_model_by_quadrature():
    """A log density with a kink at its bound, against adaptive quadrature."""

    def log_density(x):
        return -0.5 * (x[0] - 0.2) ** 2 / 0.3**2 - jnp.abs(x[0])

    result = natmix.fit(log_density, 1, bounds=(0, None), init_components=4, **PLAIN)
    true = integrate.quad(lambda x: np.exp(-0.5 * (x - 0.2) ** 2 / 0.3**2 - abs(x)), 0, np.inf)[0]
    assert result.diagnosis.log_evidence.value == pytest.approx(np.log(true), abs=0.02)
