"""How many cores this process has."""

import os


def usable_cores() -> int:
    """Those it may use, or as many as XLA is told to (``NPROC``)."""
    told = os.environ.get("NPROC", "")
    if told.isdecimal():
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
