"""One run on several devices: components and samples are divided among them.

The devices form a mesh with one axis. Arrays with components first and arrays with samples first are cut
along it; log densities [N, K] are cut by samples. Every device evaluates its samples under all components
(whose parameters are sent to all), sums over samples are reduced to the device of the component, and every
device updates its own components. The rest follows from JAX's propagation of shardings.

The mesh is that of the plan in use (`natmix.kernels.plan`); without one all functions here do nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.tree_util import Partial

from natmix.array_types import Count, PyTree
from natmix.kernels.plan import current, using

T = TypeVar("T")
Devices = Mesh | Sequence[jax.Device]


def as_mesh(devices: Devices | None) -> Mesh | None:
    """The mesh of these devices, with one axis along which JAX propagates shardings by itself."""
    if devices is None:
        return None
    if isinstance(devices, Mesh):
        if len(devices.axis_names) != 1:
            raise ValueError(
                f"The mesh must have one axis, got {dict(devices.shape)}; components and samples share it: "
                f'jax.make_mesh(({devices.size},), ("components",)).'
            )
        array, name = devices.devices, devices.axis_names[0]
    else:
        listed = list(devices) if isinstance(devices, Sequence) else []
        if not listed or not all(isinstance(d, jax.Device) for d in listed):
            raise ValueError(
                "mesh must be a jax.sharding.Mesh or a list of devices such as jax.devices(), "
                f"got {devices!r}."
            )
        array, name = np.array(listed), "components"
    if len(set(array)) != array.size:
        raise ValueError("The mesh names a device twice.")
    if any(d.process_index != jax.process_index() for d in array):
        raise ValueError("The mesh has devices of other processes; use jax.local_devices().")
    return Mesh(array, (name,), axis_types=(AxisType.Auto,))


def round_up_slots(slots: int, mesh: Mesh | None) -> int:
    """The next multiple of the number of devices, so that each has as many slots as the others."""
    return slots if mesh is None else -(-slots // mesh.size) * mesh.size


def divided() -> bool:
    """Whether the work is divided among devices."""
    return current().mesh is not None


def split(tree: T) -> T:
    """Cut arrays along their first axis; those that cannot be cut evenly are replicated."""
    return _constrained(tree, cut=True)


def everywhere(tree: T) -> T:
    """Replicate arrays on every device."""
    return _constrained(tree, cut=False)


def _constrained(tree: T, cut: bool) -> T:
    mesh = current().mesh
    if mesh is None:
        return tree

    def constrain(a: Any) -> Any:
        if not eqx.is_array(a):
            return a
        spec = _spec(mesh, a) if cut else PartitionSpec()
        return jax.lax.with_sharding_constraint(a, NamedSharding(mesh, spec))

    return jax.tree.map(constrain, tree)


def _spec(mesh: Mesh, a: Any) -> PartitionSpec:
    even = len(a.shape) > 0 and a.shape[0] > 0 and a.shape[0] % mesh.size == 0
    return _first_axis(mesh) if even else PartitionSpec()


# What every device does by itself ---------------------------------------------------------------
#
# The functions are pytrees: the arrays they need are leaves of a bound method or arguments of a
# `jax.tree_util.Partial`, which are replicated. The arrays of a closure would belong to the mesh as a whole.


def map_slots(fn: Callable[..., PyTree], *trees: PyTree) -> PyTree:
    """``fn`` of trees whose first axis is that of components, in and out: every device does its own."""
    mesh = _present()
    return _on_each(mesh, fn, _first_axis(mesh))(trees)


def everywhere_alike(fn: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """``fn`` computed by every device: for short vectors, which are not worth communication."""
    mesh = current().mesh
    if mesh is None:
        return fn(*args)
    return _on_each(mesh, fn, PartitionSpec(), PartitionSpec())(args)


def map_samples(
    fn: Callable[..., PyTree], arrays: tuple[PyTree, ...], count: Count | int | None, multiple: int = 1
) -> PyTree:
    """``fn(arrays, count)`` with samples first, in and out: every device does its own samples.

    Each gets the same number, a multiple of ``multiple``.
    """
    mesh = _present()
    n = _length(arrays)
    share = -(-n // (mesh.size * multiple)) * multiple
    out = _on_each(mesh, Partial(_own_samples, fn, count, share, mesh.axis_names[0]), _first_axis(mesh))(
        _padded(arrays, share * mesh.size - n)
    )
    return jax.tree.map(lambda o: o[:n], out)


def sum_samples(fn: Callable[..., PyTree], arrays: tuple[PyTree, ...], count: Count | int | None) -> PyTree:
    """The sum over devices of ``fn(arrays, count)`` of their samples; sums by component are split."""
    mesh = _present()
    axis = mesh.axis_names[0]
    n = _length(arrays)
    share = -(-n // mesh.size)
    with using(current().alone()):
        kind = eqx.filter_eval_shape(fn, arrays, None)
    scattered = jax.tree.map(lambda a: _spec(mesh, a) == _first_axis(mesh), kind)

    def add_up(a: jax.Array, scatter: bool) -> jax.Array:
        if scatter:
            return jax.lax.psum_scatter(a, axis, scatter_dimension=0, tiled=True)
        return jax.lax.psum(a, axis)

    def total(fn: Callable[..., PyTree], *arrays: PyTree) -> PyTree:
        return jax.tree.map(add_up, fn(*arrays), scattered)

    own = Partial(total, Partial(_own_samples, fn, count, share, axis))
    specs = jax.tree.map(lambda s: _first_axis(mesh) if s else PartitionSpec(), scattered)
    return _on_each(mesh, own, specs)(_padded(arrays, share * mesh.size - n))


def _on_each(
    mesh: Mesh, fn: Callable[..., PyTree], out_specs: PyTree, in_specs: PartitionSpec | None = None
) -> Callable[[tuple[PyTree, ...]], PyTree]:
    needed, rest = eqx.partition(fn, eqx.is_array)

    def local(needed: PyTree, args: tuple[PyTree, ...]) -> PyTree:
        with using(current().alone()):
            return eqx.combine(needed, rest)(*args)

    # check_vma=False: the rules for double precision and for batches do not say which devices differ.
    on_each = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(PartitionSpec(), _first_axis(mesh) if in_specs is None else in_specs),
        out_specs=out_specs,
        check_vma=False,
    )
    return lambda args: on_each(needed, args)


def _own_samples(
    fn: Callable[..., PyTree], count: Count | int | None, share: int, axis: str, *arrays: PyTree
) -> PyTree:
    """``fn`` of a device's own samples and how many of them are real when the first ``count`` of all are."""
    if count is not None:
        count = jnp.clip(count - jax.lax.axis_index(axis) * share, 0, share)
    return fn(arrays, count)


def _first_axis(mesh: Mesh) -> PartitionSpec:
    return PartitionSpec(mesh.axis_names[0])


def _present() -> Mesh:
    mesh = current().mesh
    assert mesh is not None
    return mesh


def _length(arrays: PyTree) -> int:
    return jax.tree.leaves(arrays)[0].shape[0]


def _padded(arrays: tuple[PyTree, ...], extra: int) -> tuple[PyTree, ...]:
    if extra == 0:
        return arrays
    return jax.tree.map(lambda a: jnp.pad(a, [(0, extra)] + [(0, 0)] * (a.ndim - 1)), arrays)
