"""`fit(init_draws=...)`: draws that somebody has, as users hold them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import Mixture
from natmix.initialization.draw_clusters import cluster_draws
from natmix.initialization.draws_mixture import InitialDraws
from natmix.models import NumpyroModel, PytreeModel
from natmix.result.inference_data import inference_data

RNG = np.random.default_rng(0)
CENTRES, WEIGHTS, SCALES = np.array([-8.0, 8.0]), np.array([0.7, 0.3]), np.array([0.5, 1.0])
OPTIONS: dict[str, Any] = {"algorithm": "semtron", "progress": False, "verify": False, "elbo_samples": 500}


def two_modes(x):
    """Two Gaussians, of different widths."""
    r = x[..., None, :] - CENTRES[:, None]
    log_p = -0.5 * jnp.sum((r / SCALES[:, None]) ** 2, -1) - x.shape[-1] * jnp.log(
        SCALES * (2 * jnp.pi) ** 0.5
    )
    return jnp.logaddexp(*jnp.moveaxis(log_p + jnp.log(WEIGHTS), -1, 0))


def draws_of_two_modes(n, dim=2, rng=RNG):
    which = rng.choice(2, n, p=WEIGHTS)
    return CENTRES[which, None] + SCALES[which, None] * rng.standard_normal((n, dim))


# The mixture of draws --------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "n"), [(1, 40), (2, 60), (2, 1000), (20, 60), (20, 500)])
def test_draws_of_two_modes_give_a_mixture_that_covers_both(dim, n):
    x = draws_of_two_modes(n, dim, np.random.default_rng(dim + n))
    found = cluster_draws(x, 64)
    share = np.array([found.weights[np.sign(found.means[:, 0]) == s].sum() for s in (-1, 1)])
    np.testing.assert_allclose(share, [np.mean(x[:, 0] < 0), np.mean(x[:, 0] > 0)], atol=0.02)
    for weight, mean, covariance in zip(*found, strict=True):
        if weight > 0.2:
            assert np.abs(np.abs(mean) - 8).max() < 1
            assert 0.4 < np.sqrt(np.diag(covariance)).mean() < 1.3


def test_modes_apart_in_one_of_many_coordinates_are_told_apart():
    x = np.random.default_rng(0).standard_normal((200, 50))
    x[:80, 7] += 20
    found = cluster_draws(x, 64)
    np.testing.assert_allclose(np.sort(found.weights), [0.4, 0.6])


def test_a_narrow_mode_keeps_its_width():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal((500, 2)), 3 + 0.01 * rng.standard_normal((500, 2))])
    found = cluster_draws(x, 64)
    sd = np.sort(np.sqrt(np.diagonal(found.covariances, axis1=1, axis2=2)).mean(1))
    np.testing.assert_allclose(sd, [0.01, 1], rtol=0.1)


@pytest.mark.parametrize("n", [2, 3, 10, 400])
def test_one_mode_is_one_component_however_few_draws_there_are(n):
    dim = 12
    L = np.linalg.cholesky(0.5 * np.eye(dim) + 0.5)
    x = np.random.default_rng(n).standard_normal((n, dim)) @ L.T * np.logspace(-3, 3, dim)
    found = cluster_draws(x, 64)
    assert len(found.weights) == 1
    np.testing.assert_allclose(found.means[0], x.mean(axis=0))
    correlation = found.covariances[0] / np.sqrt(np.outer(*[np.diag(found.covariances[0])] * 2))
    assert np.linalg.eigvalsh(correlation)[0] > 1e-4
    np.testing.assert_allclose(np.diag(found.covariances[0]), x.var(axis=0), rtol=1e-6)
    if n == 400:
        np.testing.assert_allclose(correlation[0, 1:], 0.5, atol=0.12)


def test_draws_that_occur_several_times_are_no_mode():
    x = np.random.default_rng(0).standard_normal((100, 2))
    found = cluster_draws(x[np.random.default_rng(1).integers(0, 100, 2000)], 64)
    assert len(found.weights) == 1


def test_no_more_components_than_asked_for():
    assert len(cluster_draws(draws_of_two_modes(500), 1).weights) == 1


# Forms of draws -------------------------------------------------------------------------------


def shape_model(y):
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    mean = numpyro.sample("mean", dist.Normal(0, scale).expand([3]))
    numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    numpyro.deterministic("sum", mean.sum())
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("numpyro")
    return NumpyroModel(shape_model, (jnp.zeros(3),))


@pytest.fixture(scope="module")
def vectors(model):
    return np.random.default_rng(0).standard_normal((40, model.dim))


def test_a_numpyro_model_takes_its_variables_in_every_form(model, vectors):
    named = model.constrain(vectors)
    grouped = {k: v.reshape(4, 10, *v.shape[1:]) for k, v in named.items() if k != "sum"}
    data = inference_data({"posterior": grouped})
    extracted = data["posterior"].stack(sample=("chain", "draw"))  # axis of draws last, as arviz.extract
    for given in (named, grouped, data, extracted, vectors):
        found = InitialDraws.checked(given, model, None, None)
        np.testing.assert_allclose(found.x, vectors, atol=1e-4)


def test_positions_in_every_form():
    position = {"a": {"b": jnp.full(2, 0.5)}, "c": 2.0}
    model = PytreeModel(lambda p: 0.0, position, {"a/b": (0, 1), "c": (1, None)})
    x = np.random.default_rng(0).standard_normal((12, 3))
    tree = model.constrain(x)
    chains = {"a": {"b": tree["a"]["b"].reshape(3, 4, 2)}, "c": tree["c"].reshape(3, 4)}
    by_path = {"a/b": tree["a"]["b"], "c": tree["c"]}
    stored = inference_data({"posterior": {"a.b": chains["a"]["b"], "c": chains["c"]}})
    for given in (tree, chains, by_path, stored, x):
        np.testing.assert_allclose(InitialDraws.checked(given, model, None, None).x, x, atol=1e-4)
    pair = PytreeModel(lambda p: 0.0, (0.0, jnp.zeros(2)))
    np.testing.assert_allclose(
        InitialDraws.checked((x[:, 0], x[:, 1:]), pair, None, None).x, x.astype(np.float32)
    )


def test_vectors_in_every_form():
    x = np.random.default_rng(0).standard_normal((12, 3))
    data = inference_data({"posterior": {"x": x.reshape(3, 4, 3)}})
    for given in (x, x.reshape(3, 4, 3), x.tolist(), data):
        np.testing.assert_array_equal(InitialDraws.checked(given, None, None, None).x, x)
    np.testing.assert_array_equal(InitialDraws.checked(x[:, 0], None, None, 1).x, x[:, :1])
    bounded = PytreeModel(lambda p: 0.0, jnp.full(3, 0.5), (0, 1))
    np.testing.assert_allclose(
        InitialDraws.checked(np.asarray(bounded.constrain(x)), bounded, None, None).x, x, atol=1e-4
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale": None}, "do not have the model's variable 'scale'; they have mean, share"),
        ({"scale": -1}, "40 of 40 draws of scale are not inside its support"),
        ({"scale": 0}, "40 of 40 draws of scale are not inside its support"),
        ({"share": 2}, "of share are not inside its support"),
        ({"scale": np.where(np.arange(40) == 3, np.nan, 1)}, "1 of the 40 draws of scale hold NaN"),
        ({"mean": "T"}, r"draws of mean must have shape \[N, 3\]"),
        ({"mean": "short"}, "as many draws of every variable"),
        ({"mean": "text"}, "arrays of real numbers"),
        ({"mean": "same"}, r"All init_draws have the same mean\[0\]"),
    ],
)
def test_draws_that_do_not_belong_to_the_model_get_a_sentence(model, vectors, change, words):
    named = model.constrain(vectors)
    named.pop("sum")
    ((name, how),) = change.items()
    special = {
        "T": lambda v: v.T,
        "short": lambda v: v[:7],
        "text": lambda v: np.full(v.shape, "a"),
        "same": lambda v: np.ones(v.shape),
    }
    if how is None:
        named.pop(name)
    else:
        named[name] = special[how](named[name]) if isinstance(how, str) else named[name] * how
    with pytest.raises(ValueError, match=words):
        natmix.fit(shape_model, model_args=(jnp.zeros(3),), init_draws=named, **OPTIONS)


@pytest.mark.parametrize(
    ("draws", "options", "words"),
    [
        (np.zeros((5, 3)), {}, r"shape \[N, 2\]"),
        (np.zeros(5), {}, r"shape \[N, 2\]"),
        (np.zeros((0, 2)), {}, r"shape \[N, 2\]"),
        (np.full((5, 2), np.nan), {}, "hold NaN"),
        (np.full((5, 2), np.inf), {}, r"not finite in unconstrained coordinates: x\[0\]"),
        (RNG.normal(size=(1, 2)), {}, "at least 2 draws"),
        (np.ones((5, 2)), {}, r"the same x\[0\]"),
        (1e9 + RNG.normal(size=(5, 2)), {"dtype": "float32"}, "vary too little for float32"),
        ({"x": np.zeros((5, 2))}, {}, r"as an array \[N, 2\]"),
        ("draws.nc", {}, "arrays of real numbers"),
        (RNG.normal(size=(5, 2)), {"bounds": (0, 1)}, "not within the bounds"),
        (RNG.normal(size=(5, 2)), {"start": "tempered"}, "either start='tempered' or init_draws"),
        (
            RNG.normal(size=(5, 2)),
            {"init_mixture": Mixture.full([1.0], np.zeros((1, 2)), np.eye(2)[None])},
            "either init_mixture or init_draws",
        ),
    ],
)
def test_draws_that_cannot_be_used_get_a_sentence(draws, options, words):
    def never(x):
        raise AssertionError("the target is evaluated")

    with pytest.raises(ValueError, match=words):
        natmix.fit(never, dim=2, init_draws=draws, **options, **OPTIONS)


# Fits -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    return natmix.fit(two_modes, init_draws=draws_of_two_modes(600), max_iterations=20, **OPTIONS)


def test_a_fit_keeps_both_modes_of_the_draws(result):
    share = [result.mixture.weights[np.sign(result.mixture.means[:, 0]) == s].sum() for s in (-1, 1)]
    np.testing.assert_allclose(share, WEIGHTS, atol=0.01)
    assert abs(result.elbo.value) < 0.01
    assert result.counts.start_evaluations == 0


def test_the_initial_region_is_twice_as_wide_as_the_draws(result):
    x = draws_of_two_modes(600, rng=np.random.default_rng(0))
    np.testing.assert_allclose(result.start.covariance(), 4 * np.cov(x.T), rtol=0.2)


def test_the_draws_are_known_by_their_number_and_checksum(result, tmp_path):
    x = draws_of_two_modes(600, rng=np.random.default_rng(3))
    first, again = (InitialDraws.checked(x.copy(), None, None, 2).settings() for _ in range(2))
    assert first == again
    assert first["draws"] == 600
    assert InitialDraws.checked(x + 1e-9, None, None, 2).settings()["sha256"] != first["sha256"]
    result.save(tmp_path / "result")
    loaded = natmix.Result.load(tmp_path / "result")
    assert loaded.settings["init_draws"] == result.settings["init_draws"]
    assert result.settings["init_draws"]["draws"] == 600
    assert result.settings["init_mixture"] is False


def test_a_result_can_be_given_in_place_of_its_draws(result):
    own, of_draws = (
        natmix.fit(two_modes, dim=2, init_draws=d, max_iterations=2, **OPTIONS)
        for d in (result, result.draws.x)
    )
    np.testing.assert_array_equal(own.mixture.means, of_draws.mixture.means)
    assert own.settings["init_draws"] == of_draws.settings["init_draws"]


def test_a_region_may_be_given_beside_draws():
    found = natmix.fit(
        two_modes,
        init_draws=draws_of_two_modes(50),
        init_mean=1.0,
        init_scale=30.0,
        max_iterations=1,
        **OPTIONS,
    )
    np.testing.assert_allclose(found.start.covariance(), 900 * np.eye(2), rtol=1e-4)
    np.testing.assert_allclose(found.start.mean(), 1.0, rtol=1e-4)
