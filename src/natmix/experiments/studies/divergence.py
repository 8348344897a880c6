"""A trial whose settings make the algorithm diverge ends with that reason."""

import numpy as np

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.targets import TargetError

PATIENCE = 10
"""Iterations in a row without a usable ELBO, after which a run has diverged."""


class DivergenceGuard(Recorder):
    """Ends a run by an error after `PATIENCE` iterations in a row without a usable ELBO.

    That is one that is not finite, or where the target gave NaN or +inf at all new samples.
    """

    def __init__(self) -> None:
        self._bad = 0

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        infos = chunk.infos
        nowhere = (infos["evaluations"] > 0) & (infos["invalid"] == infos["evaluations"])
        for i, bad in enumerate(~np.isfinite(infos["elbo"]) | nowhere):
            self._bad = self._bad + 1 if bad else 0
            if self._bad == PATIENCE:
                last = run.iterations - len(chunk) + i + 1
                raise TargetError(
                    f"The algorithm diverged: in iterations {last - PATIENCE + 1} to {last} the ELBO was not "
                    "finite, or the target was not finite at any sample. Try smaller stepsizes."
                )
