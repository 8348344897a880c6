"""A live line while a C++ compiler runs."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_QUIET_SECONDS = 1.0


@contextlib.contextmanager
def shown_compiling() -> Iterator[None]:
    """Count the seconds on a terminal while a Stan program is compiled."""
    done = threading.Event()
    line = threading.Thread(target=_count, args=(done,), daemon=True) if sys.stderr.isatty() else None
    if line is not None:
        line.start()
    try:
        yield
    finally:
        done.set()
        if line is not None:
            line.join()


def _count(done: threading.Event) -> None:
    start, shown = time.monotonic(), False
    while not done.wait(_QUIET_SECONDS):
        seconds, shown = time.monotonic() - start, True
        sys.stderr.write(f"\rCompiling the Stan program (once, the result is kept) … {seconds:.0f} s")
        sys.stderr.flush()
    if shown:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
