"""Ctrl-C ends a fit at the next good moment instead of losing it."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupt:
    """Catches the first Ctrl-C; a second one acts as usual.

    Attributes:
        asked: whether Ctrl-C was pressed.
        at_once: set while the user's own code runs on the host: Ctrl-C then interrupts it directly.
    """

    def __init__(self) -> None:
        self.asked = False
        self.at_once = False

    @contextlib.contextmanager
    def watching(self) -> Iterator["Interrupt"]:
        """Watch for Ctrl-C (in the main thread; elsewhere signals cannot be caught)."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, self._handle)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        again, self.asked = self.asked, True
        if again or self.at_once:
            raise KeyboardInterrupt
