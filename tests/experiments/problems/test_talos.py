"""TALOS against Pinocchio, SciPy and published values."""

import importlib.metadata
import math
import re
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats

from natmix import Mixture
from natmix.experiments import problems
from natmix.experiments.problems import data
from natmix.experiments.problems.soft_uniform import log_normal_cdf, soft_uniform
from natmix.experiments.problems.talos import DIM, FRAMES, GOALS, JOINTS, talos
from natmix.text.extras import install

VECTORS = Path(__file__).parents[2] / "reference" / "problems" / "talos.csv"
KEY = jax.random.key(0)
CENTRES = ("published", "true")
ROWS = 4 * DIM
ENDS = ("gripper_right_base_link", "gripper_left_base_link", "right_sole_link", "left_sole_link")

try:
    URDF = data.find_file("talos_reduced.urdf")
except ImportError:
    pytest.skip("needs the robot's description: the extra talos", allow_module_level=True)


@cache
def robot(centre_of_mass="published", dtype="float64"):
    return problems.load("talos", dtype=dtype, centre_of_mass=centre_of_mass).target.fn


@cache
def evaluate(centre_of_mass="published", dtype="float64"):
    """The target's value and gradient; one program for up to ROWS points."""
    target = problems.load("talos", dtype=dtype, centre_of_mass=centre_of_mass).target
    run = eqx.filter_jit(lambda x: target.evaluate(KEY, x, ROWS, True))

    def padded(x):
        n = len(x)
        out = run(jnp.zeros((ROWS, DIM), dtype).at[:n].set(jnp.asarray(x, dtype)))
        return jax.tree.map(lambda a: a[:n], out)

    return padded


def random_poses(seed, n, spread=1.0):
    """Poses all around, the base anywhere and turned in any direction."""
    return np.random.default_rng(seed).normal(scale=spread, size=(n, DIM))


def nominal():
    """The first published point: upright, with bent knees."""
    return np.loadtxt(VECTORS, delimiter=",", skiprows=1)[0, :DIM]


class Oracle:
    """The robot in Pinocchio, on a base that moves freely."""

    def __init__(self, pin):
        self.pin = pin
        self.model = pin.buildModelFromUrdf(str(URDF), pin.JointModelFreeFlyer())
        self.data = self.model.createData()
        self.columns = [self.model.joints[self.model.getJointId(name)].idx_q for name in JOINTS]
        self.low = self.model.lowerPositionLimit[self.columns]
        self.high = self.model.upperPositionLimit[self.columns]
        self.links = {link.get("name"): link for link in ElementTree.parse(URDF).findall("link")}

    def move(self, x):
        q = self.pin.neutral(self.model)
        q[self.columns] = x[:28]
        q[:3] = x[28:31]
        q[3:7] = self.pin.Quaternion(self.pin.rpy.rpyToMatrix(*x[31:])).coeffs()
        self.pin.framesForwardKinematics(self.model, self.data, q)
        self.q = q
        return self

    def frame(self, name):
        return self.data.oMf[self.model.getFrameId(name)]

    def true_centre(self):
        return self.pin.centerOfMass(self.model, self.data, self.q)

    def published_centre(self):
        """Links from the base to each hand and foot, one chain after the other; wrist sensors weigh 1 kg."""
        masses, centres = [], []
        for end in ENDS:
            frame = self.model.frames[self.model.getFrameId(end)]
            while frame.name != "base_link":
                if frame.type == self.pin.FrameType.BODY:
                    mass, centre = self.inertial(frame.name)
                    masses.append(mass)
                    centres.append(self.frame(frame.name).act(centre))
                frame = self.model.frames[frame.parentFrame]
        assert len(masses) == 2 * (2 + 7 + 3) + 2 * (6 + 1)
        return np.average(centres, axis=0, weights=masses)

    def inertial(self, link):
        if link.startswith("wrist"):
            return 1.0, np.zeros(3)
        inertial = self.links[link].find("inertial")
        centre = np.array(inertial.find("origin").get("xyz").split(), float)
        return float(inertial.find("mass").get("value")), centre

    def centre(self, which):
        return self.published_centre() if which == "published" else self.true_centre()

    def log_density(self, x, which):
        self.move(x)
        feet = [self.frame("left_sole_link"), self.frame("right_sole_link")]
        value = 0.0
        for foot, y in zip(feet, (0.09, -0.09), strict=True):
            value += stats.norm.logpdf(foot.translation, [-0.02, y, 0], 0.02).sum()
            value += stats.norm.logpdf(foot.rotation, np.eye(3), 0.1).sum()
        hand = self.frame("gripper_left_base_link").translation
        value += stats.norm.logpdf(hand, [0.1, 0.5, 1.0], 0.02).sum()
        value += walls(x[:28], self.low, self.high, 0.05)
        return value + walls((self.centre(which) - feet[0].translation)[:2], -0.14, 0.14, 0.01)


def walls(x, low, high, std):
    return np.sum(special.log_ndtr((x - low) / std) + special.log_ndtr((high - x) / std))


@pytest.fixture(scope="module")
def oracle():
    return Oracle(pytest.importorskip("pinocchio", reason="Pinocchio is the oracle: pip install pin"))


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-9), ("float32", 1e-5)])
def test_frames_are_those_of_pinocchio(oracle, dtype, atol):
    x = random_poses(0, 30)
    rotation, position = robot(dtype=dtype).poses(jnp.asarray(x, dtype))
    assert rotation.shape == (30, 3, 3, 3)
    assert position.shape == (30, 3, 3)
    for n in range(30):
        frames = [oracle.move(x[n]).frame(name) for name in FRAMES]
        np.testing.assert_allclose(rotation[n], [f.rotation for f in frames], atol=atol)
        np.testing.assert_allclose(position[n], [f.translation for f in frames], atol=atol)


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize("which", CENTRES)
def test_centre_of_mass_is_that_of_pinocchio(oracle, which, dtype, atol):
    x = random_poses(1, 30)
    centre = robot(which, dtype).centre_of_mass(jnp.asarray(x, dtype))
    np.testing.assert_allclose(centre, [oracle.move(p).centre(which) for p in x], atol=atol)


def test_centres_of_mass_differ():
    x = jnp.asarray(random_poses(2, 5))
    gap = robot("published").centre_of_mass(x) - robot("true").centre_of_mass(x)
    assert jnp.all(jnp.linalg.norm(gap, axis=1) > 0.01)


def test_joint_limits_are_those_of_pinocchio(oracle):
    np.testing.assert_allclose(robot().low, oracle.low)
    np.testing.assert_allclose(robot().high, oracle.high)


@pytest.mark.parametrize("which", CENTRES)
def test_log_density(oracle, which):
    near = nominal() + random_poses(3, 20, 0.05)
    x = np.concatenate([near, random_poses(4, 20)])
    expected = [oracle.log_density(p, which) for p in x]
    np.testing.assert_allclose(evaluate(which)(x).log_density, expected, rtol=1e-9)


@pytest.mark.parametrize(("dtype", "rtol", "atol"), [("float64", 4e-7, 5e-7), ("float32", 1e-6, 2e-6)])
def test_published_values(dtype, rtol, atol):
    table = np.loadtxt(VECTORS, delimiter=",", skiprows=1)
    x, value, gradient = table[:, :DIM], table[:, DIM], table[:, DIM + 1 :]
    ours = evaluate(dtype=dtype)(x)
    assert ours.log_density.dtype == ours.gradient.dtype == dtype
    np.testing.assert_allclose(ours.log_density, value, rtol=rtol)
    scale = np.abs(gradient).max(axis=1, keepdims=True)
    np.testing.assert_allclose(ours.gradient / scale, gradient / scale, atol=atol)


@pytest.mark.parametrize("which", CENTRES)
def test_gradient_by_finite_differences(which):
    x = np.concatenate([nominal() + random_poses(5, 1, 0.05), random_poses(6, 1)])
    step = 1e-6
    shifts = step * np.concatenate([np.eye(DIM), -np.eye(DIM)])
    ahead, behind = np.split(
        np.asarray(evaluate(which)((x + shifts[:, None]).reshape(-1, DIM)).log_density), 2
    )
    slope = ((ahead - behind) / (2 * step)).reshape(DIM, -1).T
    gradient = evaluate(which)(x).gradient
    scale = np.abs(slope).max(axis=1, keepdims=True)
    np.testing.assert_allclose(gradient / scale, slope / scale, atol=1e-7)


def test_each_output_has_its_gradient():
    x = jnp.asarray(random_poses(7, 1))[0]
    direction = jnp.asarray(random_poses(8, 1))[0]
    step = 1e-6

    @eqx.filter_jit
    def compare(output):
        slope = (output(x + step * direction) - output(x - step * direction)) / (2 * step)
        return jax.jacrev(output)(x) @ direction, slope

    for output in (lambda x: robot().poses(x)[0], lambda x: robot().poses(x)[1], robot().centre_of_mass):
        jacobian, slope = compare(output)
        np.testing.assert_allclose(jacobian, slope, atol=1e-8)


def test_second_derivatives():
    x = jnp.asarray(nominal() + random_poses(9, 1, 0.05)[0])
    hessian = jax.jit(jax.hessian(robot()))(x)
    shifts = 1e-6 * np.concatenate([np.eye(DIM), -np.eye(DIM)])
    ahead, behind = np.split(np.asarray(evaluate()(x + shifts).gradient), 2)
    scale = jnp.abs(hessian).max()
    np.testing.assert_allclose(hessian / scale, (ahead - behind) / 2e-6 / scale, atol=1e-7)
    np.testing.assert_allclose(hessian / scale, hessian.T / scale, atol=1e-12)


def test_no_derivative_of_the_robot_itself():
    x = jnp.asarray(random_poses(10, 2))
    with pytest.raises(RuntimeError, match="differentiate"):
        eqx.filter_grad(lambda robot: jnp.sum(robot(x)))(robot())


def test_float32_agrees():
    x = random_poses(11, 50).astype(np.float32)
    coarse, fine = evaluate(dtype="float32")(x), evaluate()(x)
    np.testing.assert_allclose(coarse.log_density, fine.log_density, rtol=2e-5)
    scale = jnp.abs(fine.gradient).max(axis=1, keepdims=True)
    np.testing.assert_allclose(coarse.gradient / scale, fine.gradient / scale, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_poses_are_finite(dtype):
    limits = np.zeros((2, DIM))
    limits[:, :28] = [robot().low, robot().high]
    far = [scale * random_poses(12, 4) for scale in (10, 1e3, 1e5)]
    away = np.zeros((1, DIM))
    away[:, 28:31] = 1e6
    both = evaluate(dtype=dtype)(np.concatenate([np.zeros((1, DIM)), limits, *far, away]))
    assert jnp.all(jnp.isfinite(both.log_density))
    assert jnp.all(jnp.isfinite(both.gradient))
    assert jnp.all(jnp.any(both.gradient != 0, axis=1))


@pytest.mark.parametrize("n", [1, 1000, 1024, 2048])
def test_number_of_points_changes_nothing(n):
    """At once, without blocks: some numbers of points once crashed the CPU."""
    x = jnp.asarray(random_poses(13, n), jnp.float32)

    @jax.jit
    def both(x):
        value, pull = jax.vjp(robot(dtype="float32"), x)
        return value, pull(jnp.ones_like(value))[0]

    value, gradient = both(x)
    few = evaluate(dtype="float32")(x[-3:])
    scale = jnp.abs(few.gradient).max()
    np.testing.assert_allclose(value[-3:], few.log_density, rtol=1e-6)
    np.testing.assert_allclose(gradient[-3:] / scale, few.gradient / scale, atol=2e-6)


def test_full_turns_of_the_base_change_nothing():
    x = random_poses(17, 5)
    for turned in range(31, 34):
        other = x + 6 * np.pi * (np.arange(DIM) == turned)
        np.testing.assert_allclose(evaluate()(other).log_density, evaluate()(x).log_density, rtol=1e-9)


def test_any_shape_of_points():
    x = jnp.asarray(random_poses(14, 6))
    value = evaluate()(x).log_density
    run = eqx.filter_jit(robot())
    np.testing.assert_allclose(run(x.reshape(2, 3, DIM)), value.reshape(2, 3), rtol=1e-12)
    np.testing.assert_allclose(run(x[0]), value[0], rtol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda x: jax.vmap(robot())(x))(x), value, rtol=1e-12)


def test_targets_of_several_seeds_stack():
    targets = [problems.load("talos", seed).target for seed in (0, 1)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *targets)
    x = jnp.asarray(random_poses(15, 4))
    both = eqx.filter_jit(jax.vmap(lambda target: target.evaluate(KEY, x, 4, True)))(together)
    one = evaluate()(x)
    np.testing.assert_allclose(both.log_density, [one.log_density] * 2, rtol=1e-10)
    np.testing.assert_allclose(both.gradient, [one.gradient] * 2, rtol=1e-7, atol=1e-6)


def test_skeleton(oracle):
    x = random_poses(16, 5)
    lines = np.asarray(robot().skeleton(jnp.asarray(x)))
    names = robot().segments
    assert lines.shape == (5, len(names), 2, 3)
    assert names[-1][1] == "rgbd_link"
    assert {end for _, end in names} >= set(ENDS)
    for n in range(5):
        oracle.move(x[n])
        expected = [[oracle.frame(link).translation for link in line] for line in names]
        np.testing.assert_allclose(lines[n], expected, atol=1e-9)


def test_feasible_poses():
    run = evaluate()

    def slope(x):
        out = run(x[None])
        return -float(out.log_density[0]), -np.asarray(out.gradient[0])

    found = optimize.minimize(slope, nominal(), jac=True, method="L-BFGS-B", options={"maxiter": 400})
    assert -found.fun > 40
    good = found.x
    rotation, position = robot().poses(jnp.asarray(good))
    np.testing.assert_allclose(position, GOALS, atol=0.06)
    np.testing.assert_allclose(rotation[:2], np.broadcast_to(np.eye(3), (2, 3, 3)), atol=0.3)

    bent, moved, turned = good.copy(), good.copy(), good.copy()
    bent[8] = float(robot().high[8]) + 0.16  # the last joint of the right arm moves no goal
    moved[30] += 0.13
    turned[33] += 0.5
    barely = bent - 0.02 * (np.arange(DIM) == 8)
    feasible = robot().feasible(jnp.asarray([good, barely, bent, moved, turned]))
    np.testing.assert_array_equal(feasible, [True, True, False, False, False])

    share = problems.load("talos").secondary["feasible"]
    tight = Mixture.diagonal(jnp.array([0.25, 0.75]), jnp.asarray([good, moved]), jnp.full((2, DIM), 1e-12))
    assert share(tight, KEY) == pytest.approx(0.25, abs=0.04)


def test_entropy_is_the_metric():
    variance = np.full((1, DIM), 0.04)
    one = Mixture.diagonal(np.ones(1), np.zeros((1, DIM)), variance)
    entropy = problems.load("talos").secondary["entropy"](one, KEY)
    assert entropy == pytest.approx(0.5 * DIM * np.log(2 * np.pi * math.e * 0.04), abs=0.3)


def test_problem():
    problem = problems.load("talos", dtype="float32")
    assert (problem.name, problem.dim, problem.reference) == ("talos", 34, problem.target)
    mixture, prior = problem.start.mixture(KEY, 2000, jnp.float32)
    np.testing.assert_allclose(mixture.means.mean(), 0, atol=0.02)
    np.testing.assert_allclose(mixture.means.std(), 1, atol=0.02)
    np.testing.assert_allclose(prior.covariances[0], np.eye(DIM))


def test_bad_centre_of_mass():
    with pytest.raises(ValueError, match="centre_of_mass must be one of published, true, got 'mean'"):
        talos(centre_of_mass="mean")


def test_missing_description(monkeypatch, tmp_path):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.delenv("NATMIX_DATA", raising=False)
    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(ImportError, match=r"talos_reduced\.urdf .* " + re.escape(install("talos"))):
        talos()


def test_changed_description(monkeypatch, tmp_path):
    (tmp_path / "talos_reduced.urdf").write_bytes(URDF.read_bytes() + b"\n")
    monkeypatch.setenv("NATMIX_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="SHA-256"):
        talos()


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-9), ("float32", 3e-6)])
def test_log_normal_cdf(dtype, rtol):
    z = jnp.asarray(np.concatenate([-np.logspace(5, -2, 200), [-5, 0], np.linspace(0.1, 4, 40)]), dtype)
    fine = np.asarray(z, np.float64)
    value, slope = jax.vmap(jax.value_and_grad(log_normal_cdf))(z)
    hazard = np.sqrt(2 / np.pi) / special.erfcx(-fine / np.sqrt(2))
    np.testing.assert_allclose(
        value, special.log_ndtr(fine), rtol=rtol, atol=1e-3 * rtol + 1e-7 * (rtol > 1e-8)
    )
    np.testing.assert_allclose(slope, hazard, rtol=rtol)


def test_log_normal_cdf_curvature():
    z = np.concatenate([-np.logspace(2, -1, 50), [-5.0, 0.0, 1.0, 3.0]])
    hazard = np.sqrt(2 / np.pi) / special.erfcx(-z / np.sqrt(2))
    curvature = jax.vmap(jax.grad(jax.grad(log_normal_cdf)))(jnp.asarray(z))
    np.testing.assert_allclose(curvature, -hazard * (z + hazard), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_soft_uniform_far_away(dtype):
    x = jnp.asarray([-1e9, -1e4, -1.0, 0.5, 1.0, 1e4, 1e9], dtype)
    low, high = jnp.zeros((), dtype), jnp.ones((), dtype)
    value, slope = jax.vmap(jax.value_and_grad(lambda x: soft_uniform(x, low, high, 0.05)))(x)
    assert jnp.all(jnp.isfinite(value))
    np.testing.assert_allclose(value[3], 0, atol=1e-6)
    expected = [4e11, 4e6, None, 0, None, -(1e4 - 1) * 400, -4e11]
    for s, e in zip(slope, expected, strict=True):
        assert e is None or s == pytest.approx(e, rel=1e-5, abs=1e-12)
