"""A lock between processes that ends with the process that holds it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lock(path: Path, wait: bool) -> Iterator[bool]:
    """Hold the lock of a file; yields whether it could be had (always, after waiting).

    Where the system has no ``flock`` (Windows) every process gets it.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True  # closing the file gives the lock back
