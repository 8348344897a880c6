"""Forward kinematics and centre of mass of a robot with revolute joints.

The robot is a set of W chains from its root to its ends (hands, feet), each a row of at most L moving
joints; a joint that several chains share (the torso) is repeated in each, and short chains are filled up
with joints that do nothing. So every quantity is one array over levels and chains, and the poses along all
chains are one cumulative product. Links on fixed joints, and on joints that stay at zero, belong to the
body of the last moving joint above them. A base that moves freely is three more joints, yaw, pitch and roll
(`on_free_base`), and a shift of everything, which is left to the caller.

Arrays have the N configurations last: [L, W, 3, 3, N] rotations, [L, W, 3, N] positions. Every operation
then runs over contiguous numbers, and products of 3x3 matrices are plain arithmetic, in full precision.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.experiments.problems.urdf import Joint, Link, Robot
from natmix.kernels.linalg import einsum

BASE_JOINTS = ("base_yaw_joint", "base_pitch_joint", "base_roll_joint")


class Poses(NamedTuple):
    """Frames seen from another one: x here is rotation @ x + position there."""

    rotation: Float[Array, "*F 3 3 N"]
    position: Float[Array, "*F 3 N"]


class Reach(NamedTuple):
    """Where the ends of the chains and the centre of mass are, seen from the root."""

    ends: Poses
    centre: Float[Array, "3 N"]


class Place(NamedTuple):
    """Where a link is: the moving joint that carries it (None: it stays with the root), its frame there."""

    joint: str | None
    rotation: np.ndarray
    position: np.ndarray


def on_free_base(robot: Robot) -> Robot:
    """The robot on three joints that turn its root, one after the other: yaw, pitch, roll."""
    names = ("world", "base_yaw_link", "base_pitch_link", robot.root)
    links, carriers = dict(robot.links), dict(robot.carriers)
    for name in names[:-1]:
        links[name] = Link(name, 0.0, np.zeros(3))
    for joint, (parent, child), axis in zip(
        BASE_JOINTS, itertools.pairwise(names), np.eye(3)[::-1], strict=True
    ):
        carriers[child] = Joint(
            joint, "continuous", parent, child, np.eye(3), np.zeros(3), axis, -np.inf, np.inf
        )
    return Robot(names[0], links, carriers)


class Layout:
    """Where the links and chains are, when only these joints move.

    Attributes:
        joints: the names, in the order of the angles.
        chains: for every end, the moving joints that lead to it.
        places: of all links.
        rest: the frames of the moving joints at angle zero.
        slots: (level, chain) where each moving joint comes first.
    """

    def __init__(self, robot: Robot, joints: Sequence[str], ends: Sequence[str]) -> None:
        self.robot, self.joints, self.ends = robot, tuple(joints), tuple(ends)
        self.places: dict[str, Place] = {robot.root: Place(None, np.eye(3), np.zeros(3))}
        self.rest: dict[str, Place] = {}
        for link in sorted(robot.carriers, key=lambda link: len(robot.chain(link))):
            self._place(robot.carriers[link])
        self.chains = tuple(self._moving(end) for end in ends)
        self.slots: dict[str, tuple[int, int]] = {}
        for w, chain in enumerate(self.chains):
            for level, joint in enumerate(chain):
                self.slots.setdefault(joint.name, (level, w))
        lost = [name for name in joints if name not in self.slots]
        if lost:
            raise ValueError(f"No moving joints {', '.join(lost)} lead to {', '.join(ends)}.")

    @property
    def shape(self) -> tuple[int, int]:
        """(L, W)."""
        return max(map(len, self.chains)), len(self.chains)

    def slot(self, link: str) -> tuple[int, int]:
        """(level, chain) of the link's body."""
        joint = self.places[link].joint
        if joint is None:
            raise ValueError(f"The link {link!r} stays with the root, but only bodies that move are known.")
        return self.slots[joint]

    def _place(self, joint: Joint) -> None:
        above = self.places[joint.parent]
        here = Place(
            above.joint,
            above.rotation @ joint.rotation,
            above.position + above.rotation @ joint.translation,
        )
        if joint.name in self.joints and joint.kind != "fixed":
            self.rest[joint.name] = here
            here = Place(joint.name, np.eye(3), np.zeros(3))
        self.places[joint.child] = here

    def _moving(self, end: str) -> tuple[Joint, ...]:
        joints = (self.robot.carriers[link] for link in self.robot.chain(end))
        return tuple(joint for joint in joints if joint.name in self.rest)


class CentreOfMass(eqx.Module):
    """The centre of mass, the sum of share p + R moment over all bodies.

    Attributes:
        share: of each body in the mass.
        moment: share times centre, in the body's frame.
        below: the share of a body and all that follow in its chain.
    """

    share: Float[Array, "L W"]
    moment: Float[Array, "L W 3"]
    below: Float[Array, "L W"]

    @classmethod
    def build(cls, layout: Layout, masses: Mapping[str, float], dtype: Any) -> "CentreOfMass":
        """Of links with these masses, at the centres the robot's description gives them."""
        share, moment = np.zeros(layout.shape), np.zeros((*layout.shape, 3))
        total = sum(masses.values())
        for link, mass in masses.items():
            place, slot = layout.places[link], layout.slot(link)
            share[slot] += mass / total
            moment[slot] += mass / total * (place.position + place.rotation @ layout.robot.links[link].centre)
        below = np.cumsum(share[::-1], axis=0)[::-1]
        return cls(*(jnp.asarray(a, dtype) for a in (share, moment, below)))

    def moments(self, bodies: Poses) -> Float[Array, "L W 3 N"]:
        """Each body's part of the sum."""
        turned = apply(bodies.rotation, self.moment[..., None])
        return self.share[..., None, None] * bodies.position + turned


class KinematicChains(eqx.Module):
    """The chains of a robot.

    Attributes:
        local: a joint's rotation in the body before it, as local @ (1, sin q, cos q).
        offset: a joint's position in the body before it.
        axis: a joint's axis in the body it moves.
        joint: 1 where the joint has angle j.
        tip_rotation: the ends' rotations in the last bodies.
        tip_position: the ends' positions there.
    """

    local: Float[Array, "L W 9 3"]
    offset: Float[Array, "L W 3"]
    axis: Float[Array, "L W 3"]
    joint: Float[Array, "L W J"]
    tip_rotation: Float[Array, "W 3 3"]
    tip_position: Float[Array, "W 3"]

    @classmethod
    def build(cls, layout: Layout, dtype: Any) -> "KinematicChains":
        """From the robot's layout."""
        axis, offset = np.zeros((*layout.shape, 3)), np.zeros((*layout.shape, 3))
        rest, joint = np.tile(np.eye(3), (*layout.shape, 1, 1)), np.zeros((*layout.shape, len(layout.joints)))
        for w, chain in enumerate(layout.chains):
            for level, moving in enumerate(chain):
                axis[level, w] = moving.axis / np.linalg.norm(moving.axis)
                offset[level, w] = layout.rest[moving.name].position
                rest[level, w] = layout.rest[moving.name].rotation
                joint[level, w, layout.joints.index(moving.name)] = 1
        tips = [layout.places[end] for end in layout.ends]
        arrays = (
            _rodrigues(rest, axis),
            offset,
            axis,
            joint,
            np.array([tip.rotation for tip in tips]),
            np.array([tip.position for tip in tips]),
        )
        return cls(*(jnp.asarray(a, dtype) for a in arrays))

    def bodies(self, q: Float[Array, "J N"]) -> Poses:
        """The poses of all bodies [L, W], seen from the root."""
        L, W, _ = self.axis.shape
        angle = einsum("lwj,jn->lwn", self.joint, q)
        basis = jnp.stack([jnp.ones_like(angle), jnp.sin(angle), jnp.cos(angle)], axis=2)
        # A matrix product, so that XLA computes sin and cos once and not again for every entry.
        local = einsum("lwkm,lwmn->lwkn", self.local, basis).reshape(L, W, 3, 3, -1)

        def step(before: Array, turn: Array) -> tuple[Array, Array]:
            after = multiply(before, turn)
            return after, after

        start = jnp.broadcast_to(jnp.eye(3, dtype=local.dtype)[..., None], local.shape[1:])
        _, rotation = jax.lax.scan(step, start, local)
        first = jnp.broadcast_to(self.offset[:1, ..., None], (1, W, 3, q.shape[-1]))
        steps = jnp.concatenate([first, apply(rotation[:-1], self.offset[1:, ..., None])])
        return Poses(rotation, einsum("lm,mwkn->lwkn", _lower(L, q.dtype), steps))

    def reach(self, mass: CentreOfMass, q: Float[Array, "J N"]) -> Reach:
        """The ends and the centre of mass; the gradient costs little more than the value."""
        return _reach(q, self, mass)


@eqx.filter_custom_vjp
def _reach(q: Float[Array, "J N"], chains: KinematicChains, mass: CentreOfMass) -> Reach:
    return _reach_and_bodies(q, chains, mass)[0]


def _reach_fwd(
    perturbed: Any, q: Array, chains: KinematicChains, mass: CentreOfMass
) -> tuple[Reach, tuple[Reach, Poses, Array]]:
    del perturbed
    reach, bodies, moments = _reach_and_bodies(q, chains, mass)
    return reach, (reach, bodies, moments)


def _reach_bwd(
    residuals: tuple[Reach, Poses, Array],
    slope: Reach,
    perturbed: Any,
    q: Array,
    chains: KinematicChains,
    mass: CentreOfMass,
) -> Array:
    """The moments, about the joints, of the forces that pull at the ends and at the centre of mass.

    At joint o with axis a it is a . (torque - o x force + (h - m o) x pull), with force and torque (about the
    origin) at the end of its chain, and with share m and moment h of the bodies from it to that end.
    """
    del perturbed, q
    (ends, _), bodies, moments = residuals
    # Equinox gives None where nothing depends on an output.
    (turn, force), pull = jax.tree.map(
        lambda s, r: jnp.zeros_like(r) if s is None else s, slope, residuals[0], is_leaf=lambda s: s is None
    )
    columns = [_cross(_split(ends.rotation[..., k, :]), _split(turn[..., k, :])) for k in range(3)]
    turns = [sum(parts) for parts in zip(*columns, strict=True)]
    force, pull, at = _split(force), _split(pull), _split(bodies.position)
    torque = _add(turns, _cross(_split(ends.position), force))
    after = _split(einsum("ml,mwkn->lwkn", _lower(moments.shape[0], moments.dtype), moments))
    lever = [after[k] - mass.below[..., None] * at[k] for k in range(3)]
    axis = _split(apply(bodies.rotation, chains.axis[..., None]))
    total = _add(_add(torque, _cross(force, at)), _cross(lever, pull))
    moment = axis[0] * total[0] + axis[1] * total[1] + axis[2] * total[2]
    return einsum("lwj,lwn->jn", chains.joint, moment)


_reach.def_fwd(_reach_fwd)
_reach.def_bwd(_reach_bwd)


def _reach_and_bodies(q: Array, chains: KinematicChains, mass: CentreOfMass) -> tuple[Reach, Poses, Array]:
    bodies = chains.bodies(q)
    last = Poses(bodies.rotation[-1], bodies.position[-1])
    ends = Poses(
        multiply(last.rotation, chains.tip_rotation[..., None]),
        last.position + apply(last.rotation, chains.tip_position[..., None]),
    )
    moments = mass.moments(bodies)
    return Reach(ends, jnp.sum(moments, axis=(0, 1))), bodies, moments


class Points(eqx.Module):
    """The origins of links, anywhere on the robot."""

    offset: Float[Array, "P 3"]
    slots: tuple[tuple[int, int], ...] = eqx.field(static=True)

    @classmethod
    def build(cls, layout: Layout, links: Sequence[str], dtype: Any) -> "Points":
        """Of these links."""
        offset = [layout.places[link].position for link in links]
        return cls(jnp.asarray(offset, dtype), tuple(layout.slot(link) for link in links))

    def __call__(self, bodies: Poses) -> Float[Array, "P 3 N"]:
        """Seen from the root."""
        level, chain = np.array(self.slots).T
        return bodies.position[level, chain] + apply(bodies.rotation[level, chain], self.offset[..., None])


def multiply(A: Float[Array, "*#F 3 3 #N"], B: Float[Array, "*#F 3 3 #N"]) -> Float[Array, "*#F 3 3 #N"]:
    """A B for every configuration."""
    first, second, third = (A[..., :, j, None, :] * B[..., None, j, :, :] for j in range(3))
    return first + second + third


def apply(A: Float[Array, "*#F 3 3 #N"], v: Float[Array, "*#F 3 #N"]) -> Float[Array, "*#F 3 #N"]:
    """A v for every configuration."""
    first, second, third = (A[..., :, j, :] * v[..., None, j, :] for j in range(3))
    return first + second + third


def _split(v: Float[Array, "*F 3 N"]) -> list[Array]:
    """The three coordinates, as arrays of their own."""
    return [v[..., k, :] for k in range(3)]


def _cross(a: list[Array], b: list[Array]) -> list[Array]:
    return [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]


def _add(a: list[Array], b: list[Array]) -> list[Array]:
    return [x + y for x, y in zip(a, b, strict=True)]


def _lower(n: int, dtype: Any) -> Float[Array, "n n"]:
    return jnp.tril(jnp.ones((n, n), dtype))


def _rodrigues(rest: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """The rotation rest (a a^T + sin q [a]x + cos q (1 - a a^T)), as coefficients of (1, sin q, cos q).

    A joint that does nothing has axis zero, and stays at rest.
    """
    along = axis[..., :, None] * axis[..., None, :]
    turn = np.cross(axis[..., None, :], np.eye(3)).swapaxes(-1, -2)
    across = np.where(np.any(axis, axis=-1)[..., None, None], np.eye(3) - along, 0)
    fixed = np.eye(3) - across
    parts = np.stack([fixed, turn, across], axis=-1)
    local = np.einsum("...ab,...bcm->...acm", rest, parts)
    return local.reshape(*axis.shape[:-1], 9, 3)
