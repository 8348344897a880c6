"""What the kernels may use: the only file that inspects the device.

A `Plan` is made once, from the device that the arrays are on, and handed down while a program is traced.
Every operation in this package picks its form from the plan and the sizes of its arrays.

The plan in use is part of the key of JAX's caches: a function that was traced for one plan is traced again
for another.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import Mesh

from natmix.array_types import PyTree
from natmix.host_memory import free_host_memory
from natmix.kernels.native.library import available

SWITCH = "NATMIX_NATIVE"
"""The environment variable that turns the native kernels off when it is 0. It may also name the widest set of
vector instructions that they use: plain, wide or widest."""

_VALUES = ("0", "1", "plain", "wide", "widest")

_FAST_CAPABILITIES = ("6.0", "7.0", "8.0", "9.0", "10.0", "gfx908", "gfx90a", "gfx94", "gfx95")
"""Prefixes for data-centre GPUs. On others float64 has at most a 16th of the rate of float32."""

_context = jax.make_user_context(None)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the arrays' device can do, and how the work is divided.

    Attributes:
        platform: of the device, as JAX calls it: ``"cpu"``, ``"gpu"``, ``"tpu"``.
        native_kernels: whether natmix's compiled kernels are there and not turned off. They run on CPUs.
        fast_float64: whether products in float64 have at least half the rate of float32.
        memory: bytes of an accelerator's memory, 0 where JAX does not say.
        cores: that this process may use on the host.
        mesh: several devices that components and samples are divided among, or None.
        block_elements: numbers in a block of samples or components; by the device if None.
        together: runs that a program advances at once, by `jax.vmap`: every array has that many times the
            entries that the operations see.
    """

    platform: str = "cpu"
    native_kernels: bool = False
    fast_float64: bool = True
    memory: int = 0
    cores: int = 1
    mesh: Mesh | None = None
    block_elements: int | None = None
    together: int = 1

    @classmethod
    def detect(cls, device: jax.Device | None = None, mesh: Mesh | None = None) -> "Plan":
        """For this device, those of a mesh, or JAX's default device."""
        if mesh is not None:
            device = mesh.devices.flat[0]
        platform, fast_float64, memory = _abilities(default_device() if device is None else device)
        native = _native_wanted() and platform == "cpu" and available()
        return cls(platform, native, fast_float64, memory, usable_cores(), mesh)

    @classmethod
    def of(cls, tree: PyTree) -> "Plan":
        """The plan in use, or else that of the device which the arrays of a tree are on."""
        plan: Plan | None = _context.value
        return cls.detect(_device_of(tree)) if plan is None else plan

    @property
    def on_cpu(self) -> bool:
        """Whether the arrays are on the CPU."""
        return self.platform == "cpu"

    @property
    def on_one_cpu(self) -> bool:
        """Whether the arrays are on the CPU, and not divided among several devices."""
        return self.on_cpu and self.mesh is None

    @property
    def native(self) -> bool:
        """Whether to call native kernels, which work on one device."""
        return self.native_kernels and self.mesh is None

    def on(self, mesh: Mesh | None) -> "Plan":
        """With the work divided among the devices of a mesh, or done by one device."""
        if mesh == self.mesh:
            return self
        return self.alone() if mesh is None else Plan.detect(mesh=mesh)

    def alone(self) -> "Plan":
        """The plan for what one device does by itself."""
        return self if self.mesh is None else dataclasses.replace(self, mesh=None)

    def without_native(self) -> "Plan":
        """The plan with XLA's forms only."""
        return dataclasses.replace(self, native_kernels=False)

    def by_memory(self, bytes_each: int, fewest: int, most: int) -> int:
        """How many items of so many bytes, for each of the runs together, fit into an accelerator's memory.

        From ``fewest`` to ``most``.
        """
        return min(max(self.memory // (bytes_each * self.together), fewest), most)


def current() -> Plan:
    """The plan in use, or else that of JAX's default device."""
    plan: Plan | None = _context.value
    return Plan.detect() if plan is None else plan


@contextlib.contextmanager
def using(plan: Plan) -> Iterator[None]:
    """Trace and run for this plan."""
    if plan == current():
        yield
        return
    # The default plan is the same as none: functions traced before stay known.
    with _context(None if plan == Plan.detect() else plan):
        yield


def usable_cores() -> int:
    """Cores that this process may use, or the number that XLA is told to use (``NPROC``)."""
    told = os.environ.get("NPROC", "")
    if told.isdecimal():
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _native_wanted() -> bool:
    value = os.environ.get(SWITCH, "1")
    if value not in _VALUES:
        raise ValueError(f"{SWITCH} must be one of {', '.join(_VALUES)}, got {value!r}.")
    return value != "0"


def default_device() -> jax.Device:
    """The device that JAX puts new arrays on."""
    chosen: Any = getattr(jax.config, "jax_default_device")  # noqa: B009  not among its declared attributes
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]


def free_memory() -> int | None:
    """Bytes that new arrays may take on the devices of the plan in use; None where that is not known."""
    plan = current()
    if plan.on_cpu:
        return free_host_memory()
    devices = [default_device()] if plan.mesh is None else list(plan.mesh.devices.flat)
    left = [_free(device) for device in devices]
    known = [each for each in left if each is not None]
    return None if len(known) < len(left) else len(left) * min(known)


def _free(device: jax.Device) -> int | None:
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return max(0, stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def on_default_device(tree: PyTree) -> bool:
    """Whether all arrays of a tree are where JAX puts new ones."""
    arrays = [a for a in jax.tree.leaves(tree) if isinstance(a, jax.Array)]
    here = {default_device()}
    return all(a.devices() == here for a in arrays)


@functools.cache
def _abilities(device: jax.Device) -> tuple[str, bool, int]:
    """Platform, whether float64 is fast, and bytes of memory."""
    platform = device.platform
    if platform == "cpu":
        return platform, True, 0
    capability = str(getattr(device, "compute_capability", ""))
    stats = device.memory_stats() or {}
    return platform, capability.startswith(_FAST_CAPABILITIES), stats.get("bytes_limit", 0)


def _device_of(tree: PyTree) -> jax.Device | None:
    """The device on which a program with these arguments runs; committed arrays take precedence."""
    known = [a for a in jax.tree.leaves(tree) if isinstance(a, jax.Array)]
    known = [a for a in known if not isinstance(a, jax.core.Tracer)]
    if not known:
        return None
    placed = next((a for a in known if getattr(a, "committed", False)), known[0])
    return next(iter(placed.devices()))
