"""Ctrl-C ends a fit at the next good moment instead of losing it."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in the midst of the user's function.

    Attributes:
        evaluations: points it had been given in the call that was broken off.
    """

    def __init__(self, evaluations: int = 0) -> None:
        super().__init__()
        self.evaluations = evaluations


class Interrupt:
    """Notes the first Ctrl-C for the host loop; a second one acts at once.

    While the user's own code runs (`user_code`) the first one acts at once, too: it may be slow,
    and breaking it off harms nothing. Inside JAX it must wait: a step owns the state's memory.

    Attributes:
        asked: whether Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False

    @contextlib.contextmanager
    def watching(self) -> Iterator["Interrupt"]:
        """Watch for Ctrl-C (in the main thread, for signals reach no other, and unless it is ignored)."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
            yield self
            return
        token = _current.set(self)
        signal.signal(signal.SIGINT, self._handle)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)
            _current.reset(token)

    def forget(self) -> None:
        """Wait for the next Ctrl-C as if for the first one."""
        self.asked = False
        self._at_once = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if again or self._at_once:
            raise KeyboardInterrupt


_current: ContextVar[Interrupt | None] = ContextVar("natmix_interrupt", default=None)


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Around calls of the user's function on the host: Ctrl-C breaks them off at once."""
    watch = _current.get()
    if watch is None:
        yield
        return
    watch._at_once = True
    if watch.asked:
        raise KeyboardInterrupt
    try:
        yield
    finally:
        watch._at_once = False
