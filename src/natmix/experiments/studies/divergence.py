"""A trial whose settings make the algorithm diverge ends with that reason."""

from collections.abc import Mapping

import numpy as np

from natmix.engine.runner import Chunk
from natmix.engine.single_run import DivergedError, SingleRun
from natmix.experiments.runs.seed import Guard

PATIENCE = 10
"""Iterations in a row without a usable ELBO, after which a run has diverged."""


class DivergenceGuard(Guard):
    """Ends a run by an error after `PATIENCE` iterations in a row without a usable ELBO.

    That is one that is not finite, or where the target gave NaN or +inf at all new samples.
    """

    def __init__(self) -> None:
        self._bad = 0

    def replay(self, trace: Mapping[str, np.ndarray]) -> None:
        self._first_divergence(trace)

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        found = self._first_divergence(chunk.infos)
        if found is None:
            return
        last = run.iterations - len(chunk) + found + 1
        undone = int(chunk.infos["evaluations"][found + 1 :].astype(np.int64).sum())
        raise DivergedError(
            f"The algorithm diverged: in iterations {last - PATIENCE + 1} to {last} the ELBO was not "
            "finite, or the target was not finite at any sample. Try smaller stepsizes.",
            last,
            run.evaluations - undone,
        )

    def _first_divergence(self, infos: Mapping[str, np.ndarray]) -> int | None:
        """The row of these iterations with which the run has diverged, if there is one."""
        nowhere = (infos["evaluations"] > 0) & (infos["invalid"] == infos["evaluations"])
        for i, bad in enumerate(~np.isfinite(infos["elbo"]) | nowhere):
            self._bad = self._bad + 1 if bad else 0
            if self._bad == PATIENCE:
                return i
        return None
