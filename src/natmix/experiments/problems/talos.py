"""Poses of the humanoid TALOS: both feet on the ground, the left hand at a point, in balance."""

import itertools
from collections import Counter
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from natmix.array_types import PRNGKey
from natmix.checks import float_type
from natmix.experiments.problems.base import InitialRegion, Problem, SecondaryMetric
from natmix.experiments.problems.block_size import block_size
from natmix.experiments.problems.data import checked, find_file
from natmix.experiments.problems.kinematics import (
    BASE_JOINTS,
    CentreOfMass,
    KinematicChains,
    Layout,
    Points,
    on_free_base,
)
from natmix.experiments.problems.soft_uniform import soft_uniform
from natmix.experiments.problems.urdf import Robot, parse_urdf
from natmix.mixture import Mixture
from natmix.targets import JaxTarget

FILE = "talos_reduced.urdf"
SHA256 = "dd03ab48128523f7ffd93452ff9361e01dfd23c099540010e1ca200595bf13e9"

SIDES = ("right", "left")
JOINTS = (
    *(f"torso_{i}_joint" for i in range(1, 3)),
    *(f"arm_{side}_{i}_joint" for side in SIDES for i in range(1, 8)),
    *(f"leg_{side}_{i}_joint" for side in SIDES for i in range(1, 7)),
)
DIM = len(JOINTS) + 6
"""The angles of the joints, then position and roll, pitch and yaw of the base."""

FRAMES = ("left_sole_link", "right_sole_link", "gripper_left_base_link")
"""The left foot, the right foot and the left hand."""
GOALS = ((-0.02, 0.09, 0.0), (-0.02, -0.09, 0.0), (0.1, 0.5, 1.0))
"""Where feet and hand should be; the feet are not rotated."""
SUPPORT = 0.14
"""How far the centre of mass may be from the left foot, forwards and sideways."""

POSITION_SCALE, ROTATION_SCALE = 0.02, 0.1
LIMIT_SCALE, SUPPORT_SCALE = 0.05, 0.01

_ENDS = (*FRAMES, "gripper_right_base_link")
_WRISTS = tuple(f"wrist_{side}_{part}_link" for side in SIDES for part in ("ft", "ft_tool"))
_HEAD = ("head_1_link", "rgbd_link")
_CENTRES = ("published", "true")
_CONSTANT = (
    -9 * np.log(POSITION_SCALE) - 18 * np.log(ROTATION_SCALE) - 0.5 * (9 + 18) * np.log(2 * np.pi)
).item()
_TOLERANCE = 3.0
_SAMPLES = 2000


def talos(seed: int = 0, dtype: Any = None, *, centre_of_mass: str = "published") -> Problem:
    """The problem; nothing in it is random.

    Args:
        seed: not used.
        dtype: of the target's numbers; JAX's default if left out.
        centre_of_mass: ``"published"``, as in the paper's numbers, where links of both arms' chains (the
            torso) count twice, the base and the head do not count, and the four wrist force-torque links
            weigh 1 kg each; or ``"true"``, the centre of mass of all links.
    """
    del seed
    if centre_of_mass not in _CENTRES:
        raise ValueError(f"centre_of_mass must be one of {', '.join(_CENTRES)}, got {centre_of_mass!r}.")
    robot = parse_urdf(checked(find_file(FILE), SHA256))
    poses = Talos.build(robot, centre_of_mass, float_type(dtype))
    target = JaxTarget(fn=poses, dim=DIM, batched=True, batch_size=block_size(cpu=256, accelerator=8192))
    return Problem(
        name="talos",
        title="poses of the humanoid TALOS",
        target=target,
        reference=target,
        start=InitialRegion.build(DIM, 0.0, 1.0, 1.0),
        secondary={"entropy": _entropy, "feasible": _feasible_share(poses)},
        infinite=dict.fromkeys(
            ("log_evidence", "reverse_ess"),
            "the base's rotation is not bounded, so the target cannot be normalised",
        ),
    )


class Talos(eqx.Module):
    """The log density of a pose.

    Each foot: N(position; goal, 0.02^2 I) N(rotation matrix; identity, 0.1^2 I). Left hand: N(position; goal,
    0.02^2 I). Joint limits, and forward and sideways distance of the centre of mass from the left foot:
    soft uniforms. A pose x holds the angles of ``JOINTS``, and position and roll, pitch and yaw of the base.

    As published, nothing bounds roll, pitch and yaw: the density repeats with every full turn and cannot be
    normalised. So log Z is infinite, and the ELBO grows with the number of turns that a mixture covers.

    Attributes:
        low: lower joint limits.
        high: upper joint limits.
        segments: the links at the two ends of each line of ``skeleton``.
    """

    chains: KinematicChains
    mass: CentreOfMass
    points: Points
    low: Float[Array, " J"]
    high: Float[Array, " J"]
    segments: tuple[tuple[str, str], ...] = eqx.field(static=True)
    ends: tuple[tuple[int, int], ...] = eqx.field(static=True)

    @classmethod
    def build(cls, robot: Robot, centre_of_mass: str, dtype: Any) -> "Talos":
        """The target for the robot of the URDF file."""
        layout = Layout(on_free_base(robot), (*JOINTS, *reversed(BASE_JOINTS)), _ENDS)
        masses = _published_masses(robot) if centre_of_mass == "published" else _true_masses(robot)
        joints = {joint.name: joint for joint in robot.carriers.values()}
        segments = _segments(robot)
        points = tuple(dict.fromkeys(link for segment in segments for link in segment))
        return cls(
            KinematicChains.build(layout, dtype),
            CentreOfMass.build(layout, masses, dtype),
            Points.build(layout, points, dtype),
            jnp.asarray([joints[name].lower for name in JOINTS], dtype),
            jnp.asarray([joints[name].upper for name in JOINTS], dtype),
            segments,
            tuple((points.index(start), points.index(end)) for start, end in segments),
        )

    def __call__(self, x: Float[Array, "*N D"]) -> Float[Array, "*N"]:
        """The log density."""
        pose = _take_apart(x)
        place, turn, balance = self._terms(pose)
        square = jnp.sum(place**2, axis=(0, 1)) + jnp.sum(turn**2, axis=(0, 1, 2))
        limits = soft_uniform(pose.joints, self.low[:, None], self.high[:, None], LIMIT_SCALE)
        support = soft_uniform(balance, -SUPPORT, SUPPORT, SUPPORT_SCALE)
        return _rows(_CONSTANT - 0.5 * square + jnp.sum(limits, axis=0) + jnp.sum(support, axis=0), x)

    def feasible(self, x: Float[Array, "*N D"]) -> Bool[Array, "*N"]:
        """Whether every term is off its goal, or beyond its limits, by less than 3 standard deviations."""
        pose = _take_apart(x)
        place, turn, balance = self._terms(pose)
        beyond = jnp.maximum(self.low[:, None] - pose.joints, pose.joints - self.high[:, None]) / LIMIT_SCALE
        outside = (jnp.abs(balance) - SUPPORT) / SUPPORT_SCALE
        terms = (jnp.abs(place), jnp.abs(turn), beyond, outside)
        worst = jnp.concatenate([term.reshape(-1, term.shape[-1]) for term in terms])
        return _rows(jnp.max(worst, axis=0) < _TOLERANCE, x)

    def poses(self, x: Float[Array, "*N D"]) -> tuple[Float[Array, "*N F 3 3"], Float[Array, "*N F 3"]]:
        """Rotations and positions of ``FRAMES``."""
        pose = _take_apart(x)
        rotation, position = self.chains.reach(self.mass, pose.angles).ends
        return _rows(rotation[: len(FRAMES)], x), _rows((position + pose.position)[: len(FRAMES)], x)

    def centre_of_mass(self, x: Float[Array, "*N D"]) -> Float[Array, "*N 3"]:
        """The position of the centre of mass."""
        pose = _take_apart(x)
        return _rows(self.chains.reach(self.mass, pose.angles).centre + pose.position, x)

    def skeleton(self, x: Float[Array, "*N D"]) -> Float[Array, "*N S 2 3"]:
        """The two ends of each line of a stick figure; ``segments`` names them, the head comes last."""
        pose = _take_apart(x)
        points = self.points(self.chains.bodies(pose.angles)) + pose.position
        return _rows(points[np.array(self.ends)], x)

    def _terms(self, pose: "_Pose") -> tuple[Array, Array, Array]:
        """Positions and rotations off their goals in standard deviations; where the centre of mass is."""
        (rotation, position), centre = self.chains.reach(self.mass, pose.angles)
        goals = jnp.asarray(GOALS, position.dtype)[..., None]
        place = (position[: len(FRAMES)] + pose.position - goals) / POSITION_SCALE
        turn = (rotation[:2] - jnp.eye(3, dtype=rotation.dtype)[..., None]) / ROTATION_SCALE
        return place, turn, (centre - position[0])[:2]


class _Pose(NamedTuple):
    """The parts of a pose, points last: angles of the joints and of the base."""

    joints: Float[Array, "J n"]
    angles: Float[Array, "J+3 n"]
    position: Float[Array, "3 n"]


def _take_apart(x: Float[Array, "*N D"]) -> _Pose:
    # One split and no slices: the gradient of slices is a sum of padded parts, and where one part is a matrix
    # product and another a sum over rows, XLA on CPUs (jaxlib 0.10) makes of it a kernel that crashes.
    joints, position, base = jnp.split(x.reshape(-1, DIM).T, (len(JOINTS), len(JOINTS) + 3))
    return _Pose(joints, jnp.concatenate([joints, base]), position)


def _rows(a: Array, x: Float[Array, "*N D"]) -> Array:
    """Values with configurations first again, in the shape that x had."""
    return jnp.moveaxis(a, -1, 0).reshape(*x.shape[:-1], *a.shape[:-1])


def _true_masses(robot: Robot) -> dict[str, float]:
    return {link.name: link.mass for link in robot.links.values()}


def _published_masses(robot: Robot) -> dict[str, float]:
    """How often a link counts: once for every chain from the base to a foot or hand that contains it."""
    times = Counter(link for end in _ENDS for link in robot.chain(end))
    return {link: n * (1.0 if link in _WRISTS else robot.links[link].mass) for link, n in times.items()}


def _segments(robot: Robot) -> tuple[tuple[str, str], ...]:
    """Lines from every moving link, and every end, to the next one towards the base."""
    moving = {link for link, joint in robot.carriers.items() if joint.name in JOINTS}
    shown = {robot.root, *moving, *_ENDS, *_HEAD}
    segments: list[tuple[str, str]] = []
    for end in (*_ENDS, _HEAD[-1]):
        links = [link for link in (robot.root, *robot.chain(end)) if link in shown]
        segments += itertools.pairwise(links)
    return tuple(dict.fromkeys(segments))


def _entropy(mixture: Mixture, key: PRNGKey) -> float:
    from natmix.experiments.metrics import entropy

    return entropy(mixture, key).value


def _feasible_share(poses: Talos) -> SecondaryMetric:
    return lambda mixture, key: float(jnp.mean(poses.feasible(mixture.sample(_SAMPLES, key=key))))
