"""The links and joints of a robot, read from a URDF file."""

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import numpy as np

_ORIGIN = (0.0, 0.0, 0.0)
_KINDS = ("fixed", "revolute", "continuous")


@dataclass(frozen=True)
class Link:
    """A link; its centre of mass is in its own frame."""

    name: str
    mass: float
    centre: np.ndarray


@dataclass(frozen=True)
class Joint:
    """A joint: the child's frame at angle zero, seen from the parent's, and the axis in the child's."""

    name: str
    kind: str
    parent: str
    child: str
    rotation: np.ndarray
    translation: np.ndarray
    axis: np.ndarray
    lower: float
    upper: float


@dataclass(frozen=True)
class Robot:
    """Links by name, and joints by the name of the link that they carry (every link but the root)."""

    root: str
    links: dict[str, Link]
    carriers: dict[str, Joint]

    def chain(self, link: str) -> tuple[str, ...]:
        """The links from the root (left out) to this one."""
        if link not in self.links:
            raise ValueError(f"The robot has no link {link!r}; it has {', '.join(self.links)}.")
        if link == self.root:
            return ()
        return (*self.chain(self.carriers[link].parent), link)


def parse_urdf(content: bytes) -> Robot:
    """The robot in the content of a URDF file."""
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise ValueError(f"This is not a URDF file: {error}.") from error
    links = {link.name: link for link in map(_link, root.findall("link"))}
    joints = [_joint(element) for element in root.findall("joint")]
    carriers = {joint.child: joint for joint in joints}
    tops = {_top(name, carriers) for name in links}
    known = carriers.keys() <= links.keys() and tops <= links.keys() - carriers.keys()
    if len(tops) != 1 or len(carriers) != len(joints) or not known:
        raise ValueError("The joints of the URDF file must connect its links to one tree with one root.")
    return Robot(tops.pop(), links, carriers)


def rotation_matrix(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Rz(yaw) Ry(pitch) Rx(roll)."""
    (sr, sp, sy), (cr, cp, cy) = np.sin([roll, pitch, yaw]), np.cos([roll, pitch, yaw])
    x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return z @ y @ x


def _top(link: str, carriers: dict[str, Joint]) -> str:
    """The root of the chain that a link belongs to (in a cycle: after as many steps as there are joints)."""
    for _ in carriers:
        link = carriers[link].parent if link in carriers else link
    return link


def _link(element: ElementTree.Element) -> Link:
    mass = element.find("inertial/mass")
    centre = _numbers(element.find("inertial/origin"), "xyz", _ORIGIN)
    return Link(_text(element, "name"), 0.0 if mass is None else float(_text(mass, "value")), centre)


def _joint(element: ElementTree.Element) -> Joint:
    name, kind = _text(element, "name"), _text(element, "type")
    if kind not in _KINDS:
        raise ValueError(f"Joint {name!r} is {kind}; only {', '.join(_KINDS)} joints are known.")
    origin = element.find("origin")
    lower, upper = _limits(element.find("limit") if kind == "revolute" else None)
    return Joint(
        name,
        kind,
        _text(element.find("parent"), "link"),
        _text(element.find("child"), "link"),
        rotation_matrix(*_numbers(origin, "rpy", _ORIGIN)),
        _numbers(origin, "xyz", _ORIGIN),
        _numbers(element.find("axis"), "xyz", (1.0, 0.0, 0.0)),
        lower,
        upper,
    )


def _limits(element: ElementTree.Element | None) -> tuple[float, float]:
    if element is None:
        return -np.inf, np.inf
    return float(element.get("lower", 0)), float(element.get("upper", 0))


def _numbers(element: ElementTree.Element | None, key: str, default: tuple[float, ...]) -> np.ndarray:
    text = None if element is None else element.get(key)
    return np.array(default if text is None else [float(word) for word in text.split()])


def _text(element: ElementTree.Element | None, key: str) -> str:
    text = None if element is None else element.get(key)
    if text is None:
        raise ValueError(f"In the URDF file an element has no {key!r}.")
    return text
