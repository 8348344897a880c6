"""Log densities for other processes: what happens is decided by the point."""

import itertools
import os
import time

import numpy as np

HANGS, DIES, RAISES, UNSENDABLE = 100.0, 200.0, 300.0, 400.0
"""First coordinates of points where that happens."""


class OddError(Exception):
    """An error that cannot be unpickled."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def value(x):
    x = np.asarray(x)
    if x[0] == HANGS:
        time.sleep(600)
    if x[0] == DIES:
        os._exit(7)
    if x[0] == RAISES:
        raise OddError("no", "licence")
    if x[0] == UNSENDABLE:
        return (v for v in x)
    return -0.5 * float(x @ x)


def gradient(x):
    return -np.asarray(x)


def batch(x):
    return np.array([value(point) for point in x])


def slow_where_large(x):
    time.sleep(0.02 if x[0] > 0 else 0.002)
    return value(x)


_CALLS = itertools.count()


def hangs_later(x):
    """Answers 20 times in each process, and again once a file is gone."""
    hangs = next(_CALLS) >= 20 and os.path.exists(os.environ["NATMIX_TEST_HANGS"])
    time.sleep(600 if hangs else 0.01)
    return value(x)


class WithData:
    """A density with an array, and the process that evaluated it as its value."""

    def __init__(self, size):
        self.array = np.ones(size)
        self.loaded = 0

    def __call__(self, x):
        time.sleep(0.01)
        return float(os.getpid())

    def __setstate__(self, state):
        self.__dict__.update(state)
        path = os.environ.get("NATMIX_TEST_LOADS")
        if path:
            with open(path, "a") as file:
                file.write(f"{os.getpid()}\n")
