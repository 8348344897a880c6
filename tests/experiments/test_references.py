"""Reference samples: the samplers against brute force, the files against damage."""

import json
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from typer.testing import CliRunner

from natmix.cli.references import references
from natmix.experiments.problems import load as load_problem
from natmix.experiments.references import NAMES, Settings, cache_directory, generate, load, load_for
from natmix.experiments.references.bridge import bridge_log_evidence
from natmix.experiments.references.generate import ARMS
from natmix.experiments.references.nuts import find_mode, run_nuts
from natmix.experiments.references.planar_robot import Arm, Bend, Turn, sample_arm, shares
from natmix.experiments.references.store import save
from natmix.text.extras import install

SMALL = Settings(points=200, chains=4, warmup=60, draws=50, independent=200)

# The planar robot -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARMS)
def test_the_samplers_target_is_the_problems(name):
    rng = np.random.default_rng(0)
    x = np.concatenate([sample_arm(ARMS[name], 20, 0).samples, rng.normal(0, 0.5, (50, 10))])
    there = load_problem(name).reference.evaluate(jax.random.key(0), jnp.asarray(x), len(x), False)
    np.testing.assert_allclose(ARMS[name].log_density(x), there.log_density, rtol=1e-9, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(links=st.integers(2, 12), scale=st.floats(0.01, 3), goals=st.integers(1, 6), seed=st.integers(0, 999))
def test_no_factor_of_the_acceptance_exceeds_one(links, scale, goals, seed):
    arm = Arm(goals=goals, links=links, reach=0.7 * links, std=0.02 * links, scale=0.3, first_scale=0.7)
    rng = np.random.default_rng(seed)
    phi = rng.normal(0, scale, (500, links - 1))
    bend, turn = Bend.of(arm), Turn.of(arm)
    angles = np.concatenate([np.zeros((500, 1)), np.cumsum(phi, axis=1)], axis=1)
    end = np.exp(1j * angles).sum(axis=1)
    half_square = 0.5 * np.sum((phi @ bend.Q) * phi, axis=1)
    assert np.all(np.abs(end) >= links - half_square - 1e-9)  # f_1
    assert 0 <= bend.t < 1 / np.linalg.eigvalsh(arm.scale**2 * bend.Q).max()
    r = np.linspace(turn.shortest, links, 500)
    assert np.all(turn.share(r, np.angle(end)) <= 1 + 1e-9)  # f_3
    delta = np.linspace(-np.pi / goals, np.pi / goals, 201)
    assert np.all(1 - np.cos(delta) >= 0.5 * turn.narrower * delta**2 - 1e-12)  # f_4


class Cells:
    """Nearest goal, bend to the left or right, and where the first joint is: cells for whole samples."""

    def __init__(self, arm):
        self.goals = arm.reach * np.exp(2j * np.pi * np.arange(arm.goals) / arm.goals)
        self.edges = np.arange(-3.0, 3.5, 0.75)

    def __call__(self, x):
        end = np.exp(1j * np.cumsum(x, axis=1)).sum(axis=1)
        goal = np.argmin(np.abs(end[:, None] - self.goals), axis=1)
        bend = (x[:, 1:].sum(axis=1) > 0).astype(int)
        return (goal * 2 + bend) * (len(self.edges) + 1) + np.digitize(x[:, 0], self.edges)


def chi_square(cells, probabilities):
    """The p-value of counted cells; rare cells are put together."""
    expected = probabilities / probabilities.sum() * len(cells)
    counts = np.bincount(cells, minlength=len(expected)).astype(float)
    assert np.all(counts[expected < 1e-9 * len(cells)] == 0)
    common = expected > 8
    counts = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum() + 1e-9)
    return stats.chi2.sf(np.sum((counts - expected) ** 2 / np.maximum(expected, 1)), common.sum() - 1)


@pytest.mark.parametrize("goals", [1, 3, 4])
def test_three_links_against_a_grid(goals):
    """Mode shares, moments and log evidence, from the definition of the density alone."""
    arm = Arm(goals=goals, links=3, reach=2.2, std=0.12, scale=0.5)
    drawn = sample_arm(arm, 20_000, seed=goals)
    step, cells = 0.06, Cells(arm)
    phi = np.arange(-2.6, 2.6, step)
    theta = np.arange(-5, 5, step / 2)
    rest = np.stack(np.meshgrid(phi, phi, indexing="ij"), -1).reshape(-1, 2)
    probabilities = np.zeros(goals * 2 * (len(cells.edges) + 1))
    total, first, second = 0.0, np.zeros(3), np.zeros((3, 3))
    for block in np.array_split(rest, 20):
        x = np.column_stack([np.tile(theta, len(block)), np.repeat(block, len(theta), axis=0)])
        w = np.exp(arm.log_density(x)) * step**3 / 2
        total += w.sum()
        first += w @ x
        second += (w[:, None] * x).T @ x
        probabilities += np.bincount(cells(x), w, minlength=len(probabilities))
    assert abs(drawn.log_evidence - np.log(total)) < 4 * drawn.log_evidence_se
    assert drawn.log_evidence_se < 0.02
    assert chi_square(cells(drawn.samples), probabilities) > 1e-3
    mean = first / total
    cov = second / total - np.outer(mean, mean)
    np.testing.assert_allclose(drawn.samples.mean(axis=0), mean, atol=4 * np.sqrt(cov.max() / 20_000))
    np.testing.assert_allclose(np.cov(drawn.samples.T), cov, atol=0.03)


def test_ten_links_against_the_weighted_prior():
    """With a wide likelihood plain samples of the prior, weighted by it, do as a second sampler."""
    arm = Arm(std=0.4, reach=7.5, scale=0.3)
    drawn = sample_arm(arm, 10_000, seed=0)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400_000, 10)) * np.array([arm.first_scale] + 9 * [arm.scale])
    log_prior = stats.norm.logpdf(x, scale=[arm.first_scale] + 9 * [arm.scale]).sum(axis=1)
    w = np.exp(arm.log_density(x) - log_prior)
    z, error = w.mean(), w.std() / np.sqrt(len(w))
    assert error / z < 0.05
    assert abs(np.exp(drawn.log_evidence) - z) < 4 * np.hypot(error, z * drawn.log_evidence_se)
    cells = Cells(arm)
    here, there = cells(drawn.samples), cells(x)
    for cell in np.unique(here):
        share, inside = np.mean(here == cell), there == cell
        other = np.sum(w * inside) / w.sum()
        spread = np.sqrt(np.sum((w * (inside - other)) ** 2)) / w.sum()
        assert abs(share - other) < 4.5 * np.hypot(np.sqrt(share / len(here)), spread) + 1e-3


def test_mirror_images_and_turns_of_the_real_arm():
    """Left and right are equally likely; turn j has the share that the first joint's prior gives it."""
    arm = ARMS["planar_robot_4"]
    x = sample_arm(arm, 2000, seed=3).samples
    found = shares(arm, x)
    assert sum(found["turn"].values()) == pytest.approx(1)
    assert abs(sum(v for k, v in found["shape"].items() if k.endswith("+")) - 0.5) < 0.04
    assert abs(found["turn"]["1"] - found["turn"]["-1"]) < 0.05
    end = np.exp(1j * np.cumsum(x, axis=1)).sum(axis=1)
    a = np.angle(end * np.exp(-1j * x[:, 0]))
    j = np.arange(-8, 9)
    density = stats.norm.pdf(j * np.pi / 2 - a[:, None])
    expected = (density / density.sum(axis=1, keepdims=True)).mean(axis=0)
    for turn, share in zip(j, expected, strict=True):
        assert abs(found["turn"].get(str(turn), 0) - share) < 4 * np.sqrt(share / len(x)) + 1e-3


def test_draws_are_independent_and_follow_from_the_seed():
    arm = Arm(links=4, reach=3.0, std=0.1)
    one, same, other = (sample_arm(arm, 500, seed).samples for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert abs(np.corrcoef(one[:-1, 0], one[1:, 0])[0, 1]) < 4 / np.sqrt(500)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"goals": 0}, "needs a goal"), ({"reach": 10.0}, "within reach"), ({"std": 1.0}, "narrower")],
)
def test_bad_arms(change, words):
    with pytest.raises(ValueError, match=words):
        Arm(**change)


@pytest.mark.slow
def test_sequential_monte_carlo_finds_the_same_modes():
    """A second sampler, of the problem's own density: tempered from prior to target, with HMC moves."""
    problem = load_problem("planar_robot_4")
    x, log_z = tempered(problem.reference, particles=8000, seed=0)
    drawn = sample_arm(ARMS["planar_robot_4"], 8000, seed=5)
    assert abs(log_z - drawn.log_evidence) < 0.15
    mine, other = (shares(ARMS["planar_robot_4"], y) for y in (drawn.samples, x))
    for kind in ("turn", "shape"):
        for label in {**mine[kind], **other[kind]}:
            a, b = mine[kind].get(label, 0), other[kind].get(label, 0)
            assert abs(a - b) < 0.04, (kind, label, a, b)


def tempered(target, particles, seed):
    """Samples of the target and its log evidence by sequential Monte Carlo from the robot's prior."""
    scale = jnp.array([1.0] + 9 * [0.2])

    def log_prior(x):
        return jnp.sum(jax.scipy.stats.norm.logpdf(x, scale=scale), axis=1)

    def log_likelihood(x):
        return target.fn(x) - log_prior(x)

    @jax.jit
    def move(key, x, beta, step):
        def log_p(x):
            return log_prior(x) + beta * log_likelihood(x)

        slope = jax.grad(lambda x: log_p(x).sum())

        def one(carry, key):
            x, lp = carry
            key_v, key_u, key_n = jax.random.split(key, 3)
            v = jax.random.normal(key_v, x.shape)
            eps = step * jnp.exp(jax.random.normal(key_n, (x.shape[0], 1)) * 0.7) * scale

            def leap(_, state):
                x, v = state
                v = v + 0.5 * eps * slope(x)
                x = x + eps * v
                return x, v + 0.5 * eps * slope(x)

            y, u = jax.lax.fori_loop(0, 8, leap, (x, v))
            new = log_p(y)
            gain = new - lp + 0.5 * jnp.sum(v**2 - u**2, axis=1)
            ok = jnp.log(jax.random.uniform(key_u, gain.shape)) < gain
            return (jnp.where(ok[:, None], y, x), jnp.where(ok, new, lp)), jnp.mean(ok)

        (x, _), accepted = jax.lax.scan(one, (x, log_p(x)), jax.random.split(key, 12))
        return x, accepted.mean()

    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(particles, 10))) * scale
    beta, log_z, step = 0.0, 0.0, 0.3
    key = jax.random.key(seed)
    while beta < 1:
        ll = np.asarray(jax.jit(log_likelihood)(x))

        def surplus(log_gap, ll=ll):
            w = np.exp(np.exp(log_gap) * (ll - ll.max()))
            return w.sum() ** 2 / (w**2).sum() / particles - 0.7

        most = np.log(1 - beta)
        gap = 1 - beta if surplus(most) > 0 else np.exp(optimize.brentq(surplus, -40, most))
        log_w = gap * ll
        log_z += log_w.max() + np.log(np.mean(np.exp(log_w - log_w.max())))
        w = np.exp(log_w - log_w.max())
        u = (rng.uniform() + np.arange(particles)) / particles
        x = x[np.minimum(np.searchsorted(np.cumsum(w) / w.sum(), u), particles - 1)]
        beta = 1.0 if gap == 1 - beta else beta + gap
        for _ in range(2):
            key, sub = jax.random.split(key)
            x, accepted = move(sub, x, beta, step)
            step *= float(np.exp(accepted - 0.65))
    return np.asarray(x), log_z


# NUTS and the bridge ----------------------------------------------------------------------------

FEATURES = jnp.asarray(np.random.default_rng(0).normal([1, 2], [1, 0.3], (30, 2)))
LABELS = jnp.asarray(np.random.default_rng(1).integers(0, 2, 30))


def log_posterior(x):
    logit = FEATURES @ x
    return jnp.sum(LABELS * logit - jnp.logaddexp(0, logit)) - 0.5 * jnp.sum(x**2) / 9


def grid_of_posterior():
    axis = np.linspace(-8, 8, 401)
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    w = np.exp(np.asarray(jax.vmap(log_posterior)(jnp.asarray(x)))) * (axis[1] - axis[0]) ** 2
    return x, w


def test_newton_finds_the_mode():
    found = find_mode(log_posterior, jnp.array([5.0, -5.0]))
    best = optimize.minimize(lambda x: -float(log_posterior(jnp.asarray(x))), [0.0, 0.0], tol=1e-10)
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_nuts_and_the_bridge_against_a_grid():
    x, w = grid_of_posterior()
    run = run_nuts(log_posterior, 2, chains=4, warmup=150, draws=500, seed=0)
    assert run.draws.shape == (4, 500, 2)
    assert run.divergences == 0
    flat = run.draws.reshape(-1, 2)
    mean = w @ x / w.sum()
    cov = (w[:, None] * (x - mean)).T @ (x - mean) / w.sum()
    np.testing.assert_allclose(flat.mean(axis=0), mean, atol=5 * np.sqrt(np.diag(cov).max() / 500))
    np.testing.assert_allclose(np.cov(flat.T), cov, rtol=0.3)
    mixed = np.random.default_rng(0).permutation(flat)
    evidence = bridge_log_evidence(lambda x: np.asarray(jax.vmap(log_posterior)(x)), mixed, 0)
    assert abs(evidence.value - np.log(w.sum())) < 6 * evidence.standard_error + 1e-3
    assert evidence.standard_error < 0.05


def test_bridge_to_a_known_evidence_covers():
    """A skewed target: exponential of a Gaussian in one dimension, Gaussian in the others."""

    def log_density(x):
        return (
            2.5 + stats.gamma.logpdf(np.exp(x[:, 0]), 4) + x[:, 0] + stats.norm.logpdf(x[:, 1:]).sum(axis=1)
        )

    z = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = np.column_stack([np.log(rng.gamma(4, size=1000)), rng.normal(size=(1000, 2))])
        estimate = bridge_log_evidence(log_density, x, seed + 1000)
        z.append((estimate.value - 2.5) / estimate.standard_error)
    assert np.mean(np.abs(z) < 2) > 0.85
    assert 0.6 < np.std(z) < 1.5


# Files ------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path))
    return tmp_path / "references"


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own" / "references"
    monkeypatch.delenv("NATMIX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "natmix" / "references"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "natmix" / "references"


def test_what_is_saved_is_loaded(cache):
    x = np.random.default_rng(0).normal(size=(7, 3))
    saved = save("some", x, {"seed": 4})
    loaded = load("some")
    assert np.array_equal(loaded.samples, x)
    assert loaded.samples.dtype == np.float64
    assert loaded.sha256 == saved.sha256 == json.loads((cache / "some.json").read_text())["sha256"]
    assert loaded.info["seed"] == 4
    assert sorted(p.name for p in cache.iterdir()) == ["some.json", "some.safetensors"]


def test_damage_is_noticed(cache):
    with pytest.raises(FileNotFoundError, match="natmix references some"):
        load("some")
    save("some", np.zeros((3, 2)), {})
    file, beside = cache / "some.safetensors", cache / "some.json"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"not the file that some\.json describes.*--force"):
        load("some")
    file.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged"):
        load("some")
    save("some", np.zeros((3, 2)), {})
    beside.write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        load("some")


# Generating -------------------------------------------------------------------------------------


def test_generating_the_robots_samples(cache):
    reference = generate("planar_robot_4", settings=SMALL)
    assert reference.samples.shape == (200, 10)
    problem = load_problem("planar_robot_4")
    values = problem.reference.evaluate(jax.random.key(0), jnp.asarray(reference.samples), 200, False)
    assert np.all(np.asarray(values.log_density) > -20)
    info = reference.info
    assert len(info["r_hat"]) == len(info["effective_sample_size"]) == info["dim"] == 10
    assert info["settings"]["seed"] == 0
    assert {"python", "numpy", "jax", "numpyro", "natmix"} <= set(info["versions"])
    assert abs(info["log_evidence"] + 10.61) < 5 * info["log_evidence_se"]
    assert np.array_equal(load_for(problem).samples, reference.samples)
    again = generate("planar_robot_4", cache / "again", SMALL)
    assert again.sha256 == reference.sha256


def test_generating_the_samples_of_a_logistic_regression(cache):
    reference = generate("german_credit", settings=SMALL)
    assert reference.samples.shape == (200, 25)
    assert reference.info["draws"] == 200
    problem = load_problem("german_credit_mb")
    assert np.array_equal(load_for(problem).samples, reference.samples)
    assert abs(reference.info["log_evidence"] + 585.10) < 1.0
    assert load_for(load_problem("gmm20")) is None


def test_float64_stays_inside(tmp_path):
    program = (
        "import jax.numpy as jnp; from natmix.experiments.references import Settings, generate;"
        "r = generate('planar_robot_4', settings=Settings(points=32, independent=32));"
        "print(r.samples.dtype, jnp.zeros(1).dtype)"
    )
    environment = {**os.environ, "NATMIX_CACHE": str(tmp_path), "JAX_ENABLE_X64": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["float64", "float32"], done.stderr


def test_unknown_names_and_uneven_numbers(cache):
    with pytest.raises(ValueError, match="no reference samples of 'gmm20', only of breast_cancer"):
        generate("gmm20")
    with pytest.raises(ValueError, match="cannot be taken evenly"):
        Settings(points=10, chains=3)


def test_without_numpyro_the_install_line(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(ImportError, match=re.escape(install("reference"))):
        generate("planar_robot_4")


def run_command(*arguments):
    app = typer.Typer()
    app.command()(references)
    return CliRunner().invoke(app, arguments)


def test_the_command_makes_what_is_missing(cache, monkeypatch):
    info = {"points": 3, "draws": 3, "r_hat": [1.0], "effective_sample_size": [3.0]}
    info |= {"log_evidence": -1.0, "log_evidence_se": 0.1}
    made = []

    def fake(name, directory):
        made.append(name)
        return save(name, np.zeros((3, 1)), info, directory)

    monkeypatch.setattr("natmix.cli.references.generate", fake)
    assert run_command("german_credit").exit_code == 0
    assert run_command("german_credit").exit_code == 0
    assert made == ["german_credit"]
    assert run_command("german_credit", "--force").exit_code == 0
    assert made == ["german_credit"] * 2
    everything = run_command()
    assert everything.exit_code == 0, everything.output
    assert sorted(made[1:]) == sorted(NAMES)
    assert "R-hat at most 1.0000" in everything.output
    assert str(cache) in everything.output.replace("\n", "")


def test_the_commands_mistakes_are_one_sentence(cache, tmp_path):
    result = run_command("gmm20")
    assert result.exit_code == 2
    assert "no reference samples of 'gmm20'" in result.output
    (tmp_path / "file").write_text("")
    result = run_command("planar_robot_4", "--directory", str(tmp_path / "file" / "below"))
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) <= 2
