"""Processes that run trials share the cores of a machine: each computes on its own part of them."""

import os
from collections.abc import Sequence
from typing import NamedTuple


class CoreShare(NamedTuple):
    """The part of the cores that a process has.

    Attributes:
        place: of the process among those that share, from 0.
        processes: that share.
    """

    place: int
    processes: int

    def of(self, cores: Sequence[int]) -> list[int]:
        """Its cores: as many as those of the others, or one more; one where there are more processes."""
        n = len(cores)
        if self.processes >= n:
            return [cores[self.place % n]]
        first, last = (n * place // self.processes for place in (self.place, self.place + 1))
        return list(cores[first:last])


def own_cores(share: CoreShare) -> list[int] | None:
    """Let this thread, and those that it starts, run on its share of the cores that it may use.

    To be called before JAX is used, which starts a thread for each core that it may use.

    Returns:
        The cores; None where the operating system has no such call (macOS, Windows).
    """
    if share.processes == 1 or not hasattr(os, "sched_setaffinity"):
        return None
    cores = share.of(sorted(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, cores)
    return cores
