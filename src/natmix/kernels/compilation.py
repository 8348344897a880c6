"""Compilation with options that make it fast."""

import contextlib
import functools
import gc
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np

from natmix.kernels.plan import Plan, current, using

P = ParamSpec("P")
R = TypeVar("R")

_CPU_OPTIONS: dict[str, Any] = {"xla_backend_optimization_level": 1}
"""With `_SIMPLE_LOOPS` this halves the time of compilation, and programs run as fast
(benchmarks/speed/start_up.py). Without them programs would run several times slower."""
_SIMPLE_LOOPS: tuple[tuple[str, Any], ...] = (
    ("xla_cpu_use_fusion_emitters", False),  # jax 0.10
    ("xla_cpu_opt_preset", "CPU_OPT_PRESET_FAST_COMPILE"),  # later ones
)

_GPU_OPTIONS: dict[str, Any] = {
    "xla_gpu_experimental_enable_fusion_autotuner": False,
    "xla_gpu_enable_triton_gemm": False,
}
"""Otherwise XLA compiles every reduction and transposition a second time by Triton, which takes minutes for
some of a batch of trials, and many kernels for every matrix product, and times them all."""


_ZERO = np.zeros((), np.float32)
_itself = jax.jit(lambda x: x)
"""Returns a tracer while a program is being traced, and an array otherwise."""


def is_traced(tree: Any) -> bool:
    """Whether a program is being traced, with or without these values as its arguments."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in (_itself(_ZERO), *jax.tree.leaves(tree)))


class QuickJit(Generic[P, R]):
    """A function compiled for the device of its arrays, with the compiler's options for it.

    It is traced for the plan in use, or else for the device of its arguments. Inside another program that is
    being traced it has no options of its own: those of the outer program apply.
    """

    def __init__(self, fn: Callable[P, R], jit: Callable[..., Any], tuned: bool = False) -> None:
        self._fn = fn
        self._jit = jit
        self._tuned = tuned
        self._by_platform: dict[str, Callable[P, R]] = {}
        functools.update_wrapper(self, fn)

    @property
    def jitted(self) -> Callable[P, R]:
        """The function for the plan in use; a call costs less, but cannot be part of another program."""
        platform = current().platform
        if platform not in self._by_platform:
            options = compiler_options(platform, self._tuned)
            self._by_platform[platform] = self._jit(self._fn, compiler_options=options)
        return self._by_platform[platform]

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> jax.stages.Lowered:
        """The program for these arguments, not yet compiled."""
        jitted: Any = self.jitted
        lowered: jax.stages.Lowered = jitted.lower(*args, **kwargs)
        return lowered

    @functools.cached_property
    def _nested(self) -> Callable[P, R]:
        nested: Callable[P, R] = self._jit(self._fn)
        return nested

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        leaves = jax.tree.leaves((args, kwargs))  # which takes long for equinox modules
        if is_traced(leaves):
            return self._nested(*args, **kwargs)
        with using(Plan.of(leaves)):
            return self.jitted(*args, **kwargs)


def quick_jit(
    donate: Literal["none", "all-except-first"] = "none", tuned: bool = False
) -> Callable[[Callable[P, R]], QuickJit[P, R]]:
    """A decorator: compile as `equinox.filter_jit`, but quickly.

    Args:
        donate: the arguments whose memory the results may take.
        tuned: let XLA try kernels on a GPU: for a program in which a long run spends its time.
    """
    jit: Any = functools.partial(eqx.filter_jit, donate=donate)
    return lambda fn: QuickJit(fn, jit, tuned)


def quick_array_jit(
    static_argnums: tuple[int, ...] = (), donate_argnums: tuple[int, ...] = (), tuned: bool = False
) -> Callable[[Callable[P, R]], QuickJit[P, R]]:
    """A decorator: compile as `jax.jit`, but quickly. A call costs less than one of `quick_jit`'s."""
    jit = functools.partial(jax.jit, static_argnums=static_argnums, donate_argnums=donate_argnums)
    return lambda fn: QuickJit(fn, jit, tuned)


class Rest:
    """The part of a tree that is not arrays. It is hashable, so it can be a static argument of a program."""

    def __init__(self, leaves: tuple[Any, ...], structure: Any) -> None:
        self._parts = leaves, structure
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rest) and self._parts == other._parts

    def joined(self, arrays: tuple[Any, ...]) -> Any:
        """The tree with these arrays."""
        leaves, structure = self._parts
        return jax.tree.unflatten(
            structure, [r if a is None else a for a, r in zip(arrays, leaves, strict=True)]
        )


def parted(tree: Any) -> tuple[tuple[Any, ...], Rest]:
    """The arrays of a tree and its `Rest`. `quick_jit` separates them at every call, this does it once."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = tuple(leaf if eqx.is_array(leaf) else None for leaf in leaves)
    return arrays, Rest(tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves), structure)


@functools.cache
def compiler_options(platform: str, tuned: bool = False) -> dict[str, Any]:
    """The options for fast compilation; none if this version of XLA does not know them.

    What the environment variable ``XLA_FLAGS`` says of a GPU's options is left as it is.

    Args:
        platform: of the device, as JAX calls it.
        tuned: whether XLA may try kernels on a GPU.
    """
    if platform == "gpu":
        flags = os.environ.get("XLA_FLAGS", "")
        wanted = {} if tuned else _GPU_OPTIONS
        return {name: value for name, value in wanted.items() if name not in flags and _known(name, value)}
    if platform == "cpu":
        for name, value in _SIMPLE_LOOPS:
            if _known(name, value):
                return {**_CPU_OPTIONS, name: value}
    return {}


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector: tracing makes many objects, and it would scan them all."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def callbacks_quiet() -> Iterator[None]:
    """Silence jax's log of errors in callbacks: they are raised anyway."""
    logger = logging.getLogger("jax._src.callback")
    logger.addFilter(_says_something_else)
    try:
        yield
    finally:
        logger.removeFilter(_says_something_else)


def _says_something_else(record: logging.LogRecord) -> bool:
    return "callback failed" not in record.getMessage()


def _known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except (ValueError, RuntimeError):
        return False
    return True
