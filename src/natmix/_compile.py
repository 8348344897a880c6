"""How the programs of a run are compiled: quickly."""

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import equinox as eqx
import jax

P = ParamSpec("P")
R = TypeVar("R")

_CPU_OPTIONS: dict[str, Any] = {"xla_backend_optimization_level": 1}
"""With simple loops this halves the seconds a program takes to compile, and it runs as fast
(benchmarks/start_up.py). With other loops it would run several times slower."""
_SIMPLE_LOOPS: tuple[tuple[str, Any], ...] = (
    ("xla_cpu_use_fusion_emitters", False),  # jax 0.10
    ("xla_cpu_opt_preset", "CPU_OPT_PRESET_FAST_COMPILE"),  # later ones
)


class QuickJit(Generic[P, R]):
    """`equinox.filter_jit` with the compiler's options for this machine, asked for at the first call."""

    def __init__(self, fn: Callable[P, R], donate: Literal["none", "all-except-first"]) -> None:
        self._fn = fn
        self._donate = donate
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def jitted(self) -> Callable[P, R]:
        """The function itself, with ``lower`` and the rest."""
        jit: Any = eqx.filter_jit  # its types do not name the arguments that it passes on to jax.jit
        compiled: Callable[P, R] = jit(self._fn, donate=self._donate, compiler_options=compiler_options())
        return compiled

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.jitted(*args, **kwargs)


def quick_jit(
    donate: Literal["none", "all-except-first"] = "none",
) -> Callable[[Callable[P, R]], QuickJit[P, R]]:
    """A decorator: compile as `equinox.filter_jit`, but quickly."""
    return lambda fn: QuickJit(fn, donate)


@functools.cache
def compiler_options() -> dict[str, Any]:
    """The options for quick compilation, if this version of the compiler can be asked for simple loops."""
    if jax.default_backend() == "cpu":
        for name, value in _SIMPLE_LOOPS:
            if _known(name, value):
                return {**_CPU_OPTIONS, name: value}
    return {}


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without Python's garbage collector: tracing makes many objects, and it would look through them all."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except (ValueError, RuntimeError):
        return False
    return True
