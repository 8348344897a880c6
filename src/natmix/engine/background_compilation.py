"""Programs for more component rows, compiled in the background before they are needed."""

import contextlib
import threading
from collections.abc import Callable

import jax

from natmix.kernels.plan import current

_ENOUGH_CORES = 4
"""On a CPU. With 2 of them the iterations meanwhile take longer by about what is gained."""


class Ahead:
    """At most one program at a time is compiled, while the device works with the one before."""

    def __init__(self) -> None:
        self._rows: int | None = None
        self._thread: threading.Thread | None = None

    def wants(self, rows: int, components: int, more: int) -> bool:
        """Whether to compile for ``more`` rows now: once half of the present ones are taken."""
        return rows < more != self._rows and 2 * components >= rows and _host_has_time()

    def start(self, rows: int, compile_it: Callable[[], object]) -> None:
        """Compile for so many rows.

        An error means nothing here: if it comes again when it matters, it is raised.
        """
        double = jax.enable_x64(bool(jax.config.read("jax_enable_x64")))  # a thread has its own
        self._thread = threading.Thread(target=_quietly, args=(double, compile_it))
        self._rows = rows
        self._thread.start()

    def wait_for(self, rows: int) -> None:
        """Until the program for so many rows is there, if it is being compiled."""
        if self._thread is not None and self._rows == rows:
            self._thread.join()


def _host_has_time() -> bool:
    """Where another device does the work, or cores are left over by those that do."""
    return not current().on_cpu or current().cores >= _ENOUGH_CORES


def _quietly(double: contextlib.AbstractContextManager[object], compile_it: Callable[[], object]) -> None:
    with contextlib.suppress(Exception), double:
        compile_it()
