"""Programs for a larger capacity, compiled in the background before they are needed."""

import contextlib
import threading
from collections.abc import Callable

import jax

from natmix.kernels.plan import current

_ENOUGH_CORES = 4
"""On a CPU. With 2 cores the iterations meanwhile slow down by about as much as is gained."""


class BackgroundCompilation:
    """Compiles one program at a time, while the device runs the present one."""

    def __init__(self) -> None:
        self._capacity: int | None = None
        self._thread: threading.Thread | None = None

    def due(self, capacity: int, components: int, larger: int) -> bool:
        """Whether to compile for the ``larger`` capacity now: once half of the present slots are taken."""
        return capacity < larger != self._capacity and 2 * components >= capacity and _host_has_time()

    def start(self, capacity: int, compile_program: Callable[[], object]) -> None:
        """Compile for this capacity.

        An error is ignored here. If it occurs again when the program is needed, it is raised then.
        """
        double = jax.enable_x64(bool(jax.config.read("jax_enable_x64")))  # a thread has its own
        self._thread = threading.Thread(target=_quietly, args=(double, compile_program))
        self._capacity = capacity
        self._thread.start()

    def wait_for(self, capacity: int) -> None:
        """Wait until the program for this capacity is compiled, if that is under way."""
        if self._thread is not None and self._capacity == capacity:
            self._thread.join()


def _host_has_time() -> bool:
    """Whether the host can compile meanwhile: another device does the work, or there are enough cores."""
    return not current().on_cpu or current().cores >= _ENOUGH_CORES


def _quietly(
    double: contextlib.AbstractContextManager[object], compile_program: Callable[[], object]
) -> None:
    with contextlib.suppress(Exception), double:
        compile_program()
