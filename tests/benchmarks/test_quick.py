"""The quick benchmark knows its targets' log Z, and flags what got worse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quick_bench as quick
from quick_targets import TARGETS


@pytest.mark.parametrize("name", ["two_modes4", "five_modes2", "banana2", "funnel3", "student4"])
def test_log_z_by_importance_sampling(name):
    """From a Student-t distribution wide enough for all of them, beside the target's own log Z."""
    target = TARGETS[name]
    rng = np.random.default_rng(0)
    D, freedom, scale = target.dim, 3.0, 3.0
    z = rng.standard_t(freedom, size=(200_000, D))
    constant = jax.scipy.special.gammaln((freedom + 1) / 2) - jax.scipy.special.gammaln(freedom / 2)
    log_q = jnp.sum(
        constant - 0.5 * jnp.log(freedom * jnp.pi) - (freedom + 1) / 2 * jnp.log1p(z**2 / freedom), axis=1
    ) - D * jnp.log(scale)
    data = () if target.data is None else (target.data,)
    log_p = jax.vmap(lambda x: target.log_density(x, *data))(scale * z)
    weights = jnp.exp(log_p - log_q)
    error = float(jnp.std(weights)) / len(z) ** 0.5
    assert error < 0.05
    assert abs(float(jnp.mean(weights)) - np.exp(target.log_z)) < 5 * error


def row(**changes):
    usual = {"commit": "a", "target": "t", "seed": "0", "evaluations": "1000", "gap": "0.0100"}
    return usual | {"verdict": "trust", "time": "2.0", "components": "3"} | changes


@pytest.mark.parametrize(
    ("changes", "flagged"),
    [
        ({}, 0),
        ({"evaluations": "1200", "gap": "0.0250", "time": "2.9"}, 0),
        ({"evaluations": "1300"}, 1),
        ({"gap": "0.0400"}, 1),
        ({"gap": "nan"}, 1),
        ({"time": "3.1"}, 1),
        ({"verdict": "proposal"}, 1),
        ({"evaluations": "5000", "gap": "inf", "time": "9", "verdict": "distrust"}, 4),
    ],
)
def test_what_got_worse(changes, flagged):
    assert len(quick.worse(row(**changes), row())) == flagged


def test_the_history_is_appended_and_the_newest_line_of_another_commit_is_compared(tmp_path):
    path = tmp_path / "history.csv"
    lines = [row(commit="a", gap="1"), row(commit="b", gap="2"), row(commit="b", target="u"), row(commit="c")]
    for line in lines:
        quick.append(path, line)
    history = quick.read(path)
    assert history == lines
    assert quick.before(history, row(commit="c")) == lines[1]
    assert quick.before(history, row(commit="c", seed="2")) is None
