"""Reading robots and moving them, on a robot made up for the purpose, against Pinocchio."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix.experiments.problems.kinematics import CentreOfMass, KinematicChains, Layout, Points, on_free_base
from natmix.experiments.problems.urdf import parse_urdf

URDF = """
<robot name="crab">
  <link name="shell"><inertial><origin xyz="0.1 0 0.2"/><mass value="2"/></inertial></link>
  <link name="upper"><inertial><origin xyz="0 0.3 0"/><mass value="1.5"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.1 0.2 0.3" rpy="0 0 1"/><mass value="0.7"/></inertial></link>
  <link name="claw"><inertial><mass value="0.3"/></inertial></link>
  <link name="sensor"/>
  <link name="leg"><inertial><origin xyz="0 0 -0.4"/><mass value="0.9"/></inertial></link>
  <link name="foot"/>
  <joint name="lift" type="revolute">
    <parent link="shell"/><child link="upper"/><origin xyz="0.1 0.2 0.3" rpy="0.3 -0.2 0.5"/>
    <axis xyz="0.6 0 0.8"/><limit lower="-1" upper="2" effort="1" velocity="1"/>
  </joint>
  <joint name="bend" type="continuous">
    <parent link="upper"/><child link="lower"/><origin xyz="0 0 0.5" rpy="1 0.4 -0.7"/>
    <axis xyz="0 -0.6 0.8"/>
  </joint>
  <joint name="grip" type="revolute">
    <parent link="lower"/><child link="claw"/><origin xyz="0.2 0 0" rpy="0 0.3 0"/>
    <limit upper="1" effort="1" velocity="1"/>
  </joint>
  <joint name="mount" type="fixed">
    <parent link="claw"/><child link="sensor"/><origin xyz="0 0.05 0" rpy="0.2 0 0.1"/>
  </joint>
  <joint name="swing" type="revolute">
    <parent link="upper"/><child link="leg"/><origin xyz="-0.1 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/>
  </joint>
  <joint name="sole" type="fixed"><parent link="leg"/><child link="foot"/><origin xyz="0 0 -0.8"/></joint>
</robot>
"""
MOVING = ("swing", "lift", "bend")
"""The claw stays at zero; one joint is shared by both chains, which differ in length."""
ENDS = ("sensor", "foot")
BASE = ("base_roll_joint", "base_pitch_joint", "base_yaw_joint")


@pytest.fixture(scope="module")
def robot():
    return parse_urdf(URDF.encode())


@pytest.fixture(scope="module")
def layout(robot):
    return Layout(on_free_base(robot), (*MOVING, *BASE), ENDS)


@pytest.fixture(scope="module")
def poses(layout):
    """Frames of all links and the centre of mass at some angles, by Pinocchio."""
    pin = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle: pip install pin")
    model = pin.buildModelFromXML(URDF, pin.JointModelFreeFlyer())
    data = model.createData()
    q = np.random.default_rng(0).normal(size=(len(MOVING) + 3, 7))
    frames, centres = [], []
    for column in q.T:
        full = pin.neutral(model)
        full[3:7] = pin.Quaternion(pin.rpy.rpyToMatrix(*column[3:])).coeffs()
        for name, angle in zip(MOVING, column, strict=False):
            joint = model.joints[model.getJointId(name)]
            turn = [np.cos(angle), np.sin(angle)] if joint.nq == 2 else [angle]
            full[joint.idx_q : joint.idx_q + joint.nq] = turn
        pin.framesForwardKinematics(model, data, full)
        frames.append({f.name: data.oMf[i].copy() for i, f in enumerate(model.frames)})
        centres.append(pin.centerOfMass(model, data, full).copy())
    return jnp.asarray(q), frames, np.array(centres)


def test_links_and_joints(robot):
    assert robot.root == "shell"
    assert robot.chain("sensor") == ("upper", "lower", "claw", "sensor")
    assert robot.chain("shell") == ()
    assert robot.links["sensor"].mass == 0
    assert robot.links["claw"].centre.tolist() == [0, 0, 0]
    grip, bend, lift = (robot.carriers[link] for link in ("claw", "lower", "upper"))
    assert (grip.lower, grip.upper, grip.axis.tolist()) == (0, 1, [1, 0, 0])
    assert (bend.lower, bend.upper) == (-np.inf, np.inf)
    assert (lift.lower, lift.upper, lift.parent) == (-1, 2, "shell")


def test_ends_and_centre_of_mass(robot, layout, poses):
    q, frames, centres = poses
    masses = {link.name: link.mass for link in robot.links.values()}
    mass = CentreOfMass.build(layout, masses, jnp.float64)
    (rotation, position), centre = KinematicChains.build(layout, jnp.float64).reach(mass, q)
    for n, frame in enumerate(frames):
        np.testing.assert_allclose(rotation[..., n], [frame[e].rotation for e in ENDS], atol=1e-12)
        np.testing.assert_allclose(position[..., n], [frame[e].translation for e in ENDS], atol=1e-12)
    np.testing.assert_allclose(centre.T, centres, atol=1e-12)


def test_points(robot, layout, poses):
    q, frames, _ = poses
    links = tuple(robot.links)
    points = Points.build(layout, links, jnp.float64)(KinematicChains.build(layout, jnp.float64).bodies(q))
    for n, frame in enumerate(frames):
        np.testing.assert_allclose(points[..., n], [frame[name].translation for name in links], atol=1e-12)


def test_gradients_are_those_of_jax(robot, layout):
    """The hand-written gradient against JAX's own, through the same forward pass."""
    masses = {link.name: link.mass for link in robot.links.values()}
    mass, chains = CentreOfMass.build(layout, masses, jnp.float64), KinematicChains.build(layout, jnp.float64)
    q = jnp.asarray(np.random.default_rng(1).normal(size=(len(MOVING) + 3, 5)))
    pull = jnp.asarray(np.random.default_rng(2).normal(size=(3, 1)))

    def by_hand(q):
        reach = chains.reach(mass, q)
        return jnp.sum(jnp.sin(reach.ends.position)) + jnp.sum(pull * reach.centre**2)

    def by_jax(q):
        bodies = chains.bodies(q)
        tip = jnp.einsum("wijn,wj->win", bodies.rotation[-1], chains.tip_position) + bodies.position[-1]
        return jnp.sum(jnp.sin(tip)) + jnp.sum(pull * mass.moments(bodies).sum((0, 1)) ** 2)

    np.testing.assert_allclose(jax.jit(jax.grad(by_hand))(q), jax.jit(jax.grad(by_jax))(q), atol=1e-12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not XML", "not a URDF file"),
        ("<robot/>", "one tree with one root"),
        ('<robot><link name="a"/><link name="b"/></robot>', "one tree with one root"),
        ("<robot><link/></robot>", "has no 'name'"),
        (URDF.replace("continuous", "prismatic"), "'bend' is prismatic; only fixed, revolute, continuous"),
        (URDF.replace('child link="leg"', 'child link="lower"'), "one tree with one root"),
        (URDF.replace('parent link="leg"', 'parent link="knee"'), "one tree with one root"),
        (URDF.replace('child link="foot"', 'child link="toe"'), "one tree with one root"),
    ],
)
def test_bad_files(content, message):
    with pytest.raises(ValueError, match=message):
        parse_urdf(content.encode())


def test_a_loop_is_no_tree():
    loop = """<robot><link name="a"/><link name="b"/><link name="c"/>
      <joint name="x" type="fixed"><parent link="b"/><child link="c"/></joint>
      <joint name="y" type="fixed"><parent link="c"/><child link="b"/></joint></robot>"""
    with pytest.raises(ValueError, match="one tree with one root"):
        parse_urdf(loop.encode())


def test_bad_layouts(robot):
    with pytest.raises(ValueError, match="No moving joints swing lead to sensor"):
        Layout(robot, MOVING, ("sensor",))
    with pytest.raises(ValueError, match="No moving joints mount lead to"):
        Layout(robot, ("lift", "mount"), ENDS)
    with pytest.raises(ValueError, match="no link 'hand'; it has shell"):
        Layout(robot, MOVING, ("hand",))
    with pytest.raises(ValueError, match="'shell' stays with the root"):
        Layout(robot, MOVING, ENDS).slot("shell")
