"""Programs for a larger capacity, compiled in the background before they are needed."""

import contextlib
import threading
from collections.abc import Callable

import jax

from natmix.kernels.plan import current

_ENOUGH_CORES = 4
"""On a CPU. With 2 of them the iterations meanwhile take longer by about what is gained."""


class BackgroundCompilation:
    """At most one program at a time is compiled, while the device works with the one before."""

    def __init__(self) -> None:
        self._capacity: int | None = None
        self._thread: threading.Thread | None = None

    def due(self, capacity: int, components: int, larger: int) -> bool:
        """Whether to compile for the ``larger`` capacity now: once half of the present slots are taken."""
        return capacity < larger != self._capacity and 2 * components >= capacity and _host_has_time()

    def start(self, capacity: int, compile_program: Callable[[], object]) -> None:
        """Compile for this capacity.

        An error is ignored here: if it comes again when the program is needed, it is raised.
        """
        double = jax.enable_x64(bool(jax.config.read("jax_enable_x64")))  # a thread has its own
        self._thread = threading.Thread(target=_quietly, args=(double, compile_program))
        self._capacity = capacity
        self._thread.start()

    def wait_for(self, capacity: int) -> None:
        """Until the program for this capacity is there, if it is being compiled."""
        if self._thread is not None and self._capacity == capacity:
            self._thread.join()


def _host_has_time() -> bool:
    """Where another device does the work, or cores are left over by those that do."""
    return not current().on_cpu or current().cores >= _ENOUGH_CORES


def _quietly(
    double: contextlib.AbstractContextManager[object], compile_program: Callable[[], object]
) -> None:
    with contextlib.suppress(Exception), double:
        compile_program()
