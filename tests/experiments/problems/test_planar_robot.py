"""The planar robot against its definition in NumPy and published values."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problem_helpers import evaluate
from scipy import stats

from natmix import Mixture
from natmix.experiments import problems
from natmix.experiments.problems.planar_robot import end_position, joint_positions, mode_index

VECTORS = Path(__file__).parents[2] / "reference" / "problems" / "planar_robot_4.csv"
GOALS = {"planar_robot_1": [(7, 0)], "planar_robot_4": [(7, 0), (-7, 0), (0, 7), (0, -7)]}


def end(x):
    """One link after the other, by rotation matrices."""
    place, turn = np.zeros(2), np.eye(2)
    for angle in x:
        turn = turn @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        place = place + turn @ [1, 0]
    return place


def log_density(x, goals):
    prior = stats.norm.logpdf(x, scale=[1] + 9 * [0.2]).sum()
    return prior + max(stats.multivariate_normal.logpdf(end(x), goal, 1e-4) for goal in goals)


@pytest.mark.parametrize("name", GOALS)
def test_log_density(name):
    rng = np.random.default_rng(0)
    x = rng.normal(0, [2] + 9 * [0.4], (40, 10))
    ours = evaluate(problems.load(name).target, x, gradient=False).log_density
    np.testing.assert_allclose(ours, [log_density(p, GOALS[name]) for p in x], rtol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_published_values(dtype):
    table = np.loadtxt(VECTORS, delimiter=",", skiprows=1)
    x, value, gradient = table[:, :10], table[:, 10], table[:, 11:]
    ours = evaluate(problems.load("planar_robot_4", dtype=dtype).target, x.astype(dtype))
    np.testing.assert_allclose(ours.log_density, value, rtol=3e-6)
    scale = np.maximum(np.abs(gradient).max(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(ours.gradient / scale, gradient / scale, atol=3e-6)


def test_positions():
    x = np.random.default_rng(1).normal(size=(6, 10))
    joints = joint_positions(jnp.asarray(x))
    assert joints.shape == (6, 11, 2)
    np.testing.assert_array_equal(joints[:, 0], 0)
    np.testing.assert_allclose(np.linalg.norm(np.diff(joints, axis=1), axis=2), 1)
    np.testing.assert_allclose(joints[:, -1], [end(p) for p in x], atol=1e-12)
    np.testing.assert_allclose(end_position(jnp.asarray(x[0])), end(x[0]), atol=1e-12)


def test_a_reached_goal():
    # A regular polygon's arc: ten links turning evenly span a chord of 7.
    turn = np.linspace(0.01, 0.5, 100_000)
    chord = np.sin(5 * turn) / np.sin(turn / 2)
    bend = turn[np.argmin(np.abs(chord - 7))]
    first = np.pi / 2 - 4.5 * bend
    x = jnp.asarray([[first] + 9 * [bend]])
    np.testing.assert_allclose(end_position(x)[0], [0, 7], atol=1e-3)
    one, four = (evaluate(problems.load(n).target, x, gradient=False).log_density[0] for n in GOALS)
    assert four > one + 1e5


def bent(goal, side):
    """An arc from the base to the goal that bends to one side; 0.2287 closes the distance of 7."""
    joints = np.full(10, -side * 0.4574)
    joints[0] = np.arctan2(goal[1], goal[0]) - 4.5 * joints[1]
    return joints


def test_paths_to_the_goals_are_told_apart_by_side():
    x = np.stack([bent(goal, side) for goal in GOALS["planar_robot_4"] for side in (-1, 1)])
    np.testing.assert_allclose(
        [end(a) / np.linalg.norm(end(a)) * 7 for a in x[::2]], GOALS["planar_robot_4"], atol=1e-6
    )
    found = mode_index(jnp.asarray(x), jnp.asarray(GOALS["planar_robot_4"], float))
    np.testing.assert_array_equal(found, np.arange(8))


def test_paths_found_are_those_with_some_weight():
    x = np.stack([bent(goal, side) for goal in GOALS["planar_robot_4"] for side in (-1, 1)])
    found = problems.load("planar_robot_4").secondary["detected_modes"]
    covariances = np.stack(10 * [1e-4 * np.eye(10)])
    two_alike = Mixture.full(10 * [0.1], np.concatenate([x, x[:2]]), covariances)
    assert found(two_alike, jax.random.key(0)) == 8
    light = Mixture.full([0.4999, 0.4999, 1e-4, 1e-4], x[:4], covariances[:4])
    assert found(light, jax.random.key(0)) == 2
