"""What a process of natmix's own runs: it gets a function once, then points."""

import contextlib
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait

from natmix.targets.base import TargetError
from natmix.targets.calls import portable, unpickled

READY = "ready"


def serve(connection: Connection) -> None:
    """Answer tasks until the connection is closed."""
    _apart()
    try:
        connection.send(READY)
        call = unpickled(connection.recv_bytes())
    except TargetError as error:
        connection.send(str(error))
        return
    connection.send(None)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            points, needs_gradient = connection.recv()
            outcome = portable(call(points, needs_gradient))
            try:
                connection.send(outcome)
            except (EOFError, BrokenPipeError):
                return
            except Exception as error:  # an output that cannot be pickled
                connection.send(f"The target's output cannot be sent back ({type(error).__name__}: {error}).")


def _apart() -> None:
    """In a process group of its own, so that what the function starts ends with it; and with its parent."""
    if hasattr(os, "setsid"):
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        kill_group(os.getpid())


def kill_group(pid: int) -> None:
    """End a worker and the programs that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg") and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
