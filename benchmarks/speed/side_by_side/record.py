"""What both workers write down: a clock that stands still meanwhile, marks, mixtures, memory.

Needs only NumPy, because it runs in both environments.
"""

import contextlib
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

SHARE, GAP = 0.15, 0.1
"""A mixture is kept after this share of the time since the first iteration, and so many seconds at least."""


class Recorder:
    """Marks on a wall clock that does not count the time spent on them."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self.directory, self.budget = directory, seconds
        self.marks: dict[str, list[float]] = {
            k: [] for k in ("seconds", "compile_seconds", "iterations", "evaluations", "components")
        }
        self.mixtures: list[dict[str, Any]] = []
        self._next = self._now = self._paused = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("*.npz"):
            old.unlink()
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start - self._paused

    @property
    def spent(self) -> bool:
        return self.seconds >= self.budget

    @contextlib.contextmanager
    def pause(self) -> Iterator[float]:
        """The clock stands still inside, at the seconds given; `mark` and `keep` are for inside."""
        before = time.perf_counter()
        self._now = before - self._start - self._paused
        try:
            yield self._now
        finally:
            self._paused += time.perf_counter() - before

    def mark(self, iterations: int, evaluations: int, components: int, compile_seconds: float) -> None:
        row = (self._now, compile_seconds, iterations, evaluations, components)
        for values, value in zip(self.marks.values(), row, strict=True):
            values.append(value)

    @property
    def since_first(self) -> float:
        """Seconds of the present pause since the first mark."""
        return self._now - self.marks["seconds"][0]

    @property
    def wants_mixture(self) -> bool:
        return self._now >= min(self._next, self.budget)

    def keep(self, log_weights: np.ndarray, mean: np.ndarray, scale_tril: np.ndarray) -> None:
        """Write the mixture of the last mark."""
        file = f"{len(self.mixtures):04d}.npz"
        np.savez(self.directory / file, log_weights=log_weights, mean=mean, scale_tril=scale_tril)
        self.mixtures.append({"file": file, **{k: v[-1] for k, v in self.marks.items()}})
        self._next = self._now + max(GAP, SHARE * self.since_first)

    def write(self, path: Path, **more: Any) -> None:
        found = {
            "budget": self.budget,
            **more,
            "peak_mib": peak_mib(),
            "marks": self.marks,
            "checkpoints": self.mixtures,
            "machine": machine(),
        }
        path.write_text(json.dumps(found))


def peak_mib() -> float:
    """The most memory this process had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def machine() -> dict[str, Any]:
    model = ""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line for line in lines if line.startswith("model name")).split(":")[1].strip()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return {"cpus": os.cpu_count(), "cpu": model, "python": platform.python_version(), "load": load}


def versions(*packages: str) -> dict[str, str]:
    return {package: version(package) for package in packages}
