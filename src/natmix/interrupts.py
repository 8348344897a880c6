"""Ctrl-C or SIGTERM ends a run at the next good moment instead of losing it."""

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what batch systems announce the end with."""


class Interrupted(KeyboardInterrupt):
    """An interrupt in the midst of the user's function.

    Attributes:
        evaluations: points it had been given in the call that was broken off.
    """

    def __init__(self, evaluations: int = 0) -> None:
        super().__init__()
        self.evaluations = evaluations


class Interrupt:
    """Notes the first signal (Ctrl-C or SIGTERM) for the host loop; a second one acts at once.

    While the user's own code runs (`user_code`) the first one acts at once, too: it may be slow,
    and breaking it off harms nothing. Inside JAX it must wait: a step owns the state's memory.

    Attributes:
        asked: whether there was a signal.
    """

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False

    @contextlib.contextmanager
    def watching(self) -> Iterator["Interrupt"]:
        """Watch for signals: in the main thread, for they reach no other, and unless they are ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        # One that is ignored stays so. A handler that is not Python's (None) could not be put back.
        before = {n: h for n, h in before.items() if h not in (signal.SIG_IGN, None)}
        token = _current.set(self)
        for number in before:
            signal.signal(number, self._handle)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            _current.reset(token)

    def forget(self) -> None:
        """Wait for the next signal as if for the first one."""
        self.asked = False
        self._at_once = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if again or self._at_once:
            raise KeyboardInterrupt


def sigterm_as_ctrl_c(fn: Callable[P, R]) -> Callable[P, R]:
    """While ``fn`` runs in the main thread, SIGTERM raises KeyboardInterrupt, unless it has a handler.

    An `Interrupt` that watches inside takes its place for as long.
    """

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return fn(*args, **kwargs)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return fn(*args, **kwargs)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return call


_current: ContextVar[Interrupt | None] = ContextVar("natmix_interrupt", default=None)


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Around calls of the user's function on the host: an interrupt breaks them off at once."""
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
