"""Programs for more component rows, compiled in the background before they are needed."""

import contextlib
import threading
from collections.abc import Callable

import jax

from natmix._capacity import grown


class Ahead:
    """At most one program at a time is compiled, while the device works with the one before."""

    def __init__(self) -> None:
        self._rows: int | None = None
        self._thread: threading.Thread | None = None

    def wanted(self, rows: int, components: int, dim: int, most: int) -> int | None:
        """For how many rows to compile now: the next number, once half of the present ones are taken."""
        more = min(grown(rows, dim), most)
        if more <= rows or 2 * components < rows or more == self._rows or not _host_is_idle():
            return None
        return more

    def start(self, rows: int, compile_it: Callable[[], object]) -> None:
        """Compile for so many rows.

        An error means nothing here: if it comes again when it matters, it is raised.
        """
        self._thread = threading.Thread(target=_quietly, args=(compile_it,))
        self._rows = rows
        self._thread.start()

    def wait_for(self, rows: int) -> None:
        """Until the program for so many rows is there, if it is being compiled."""
        if self._thread is not None and self._rows == rows:
            self._thread.join()


def _host_is_idle() -> bool:
    """Where another device does the work."""
    return jax.default_backend() != "cpu"


def _quietly(compile_it: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        compile_it()
