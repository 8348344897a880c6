"""The snapshot that a callback of `natmix.fit` receives."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.interrupts import user_code
from natmix.mixture import Mixture
from natmix.mixture.negligible import without_negligible
from natmix.modules.state import State


@dataclasses.dataclass(frozen=True)
class FitSnapshot:
    """The progress of a fit after a chunk of iterations.

    Attributes:
        iteration: iterations done.
        elbo: mean of the ELBO (Eq. 1) over the iterations of the chunk, each on its own samples.
        elbo_se: its standard error.
        components: of the mixture, those of negligible weight included.
        evaluations: of the target, those before the first iteration included.
        seconds: since `fit` was called.
        kl: mean over the chunk of the estimates of KL(q || p), each on its own samples, some of them reused.
    """

    iteration: int
    elbo: float
    elbo_se: float
    components: int
    evaluations: int
    seconds: float
    kl: float
    _state: State = dataclasses.field(repr=False)

    @classmethod
    def of(cls, run: SingleRun, chunk: Chunk, first_evaluations: int = 0) -> "FitSnapshot":
        """The snapshot of a run after this chunk."""
        elbo, error = chunk.infos["elbo"], chunk.infos["elbo_se"]
        return cls(
            run.iterations,
            float(np.mean(elbo)),
            float(np.sqrt(np.mean(error**2) / len(error))),
            run.components,
            first_evaluations + run.evaluations,
            run.seconds,
            float(np.mean(chunk.infos["kl"])),
            run.state,
        )

    @functools.cached_property
    def mixture(self) -> Mixture:
        """The present mixture, without components of negligible weight.

        It is copied when it is first read, which must be within the callback: the next iterations reuse its
        memory. The copy stays valid.
        """
        if any(a.is_deleted() for a in jax.tree.leaves((self._state.iteration, self._state.mixture))):
            raise RuntimeError(
                "The fit has gone on and reused the memory of this snapshot's mixture; read `mixture` "
                "within the callback."
            )
        return without_negligible(jax.device_get(self._state.mixture))[0]


class CallbackRecorder(Recorder):
    """Calls the user's function after every chunk; ends the run if that returns True.

    Attributes:
        asked: whether it did.
    """

    def __init__(self, callback: Callable[[FitSnapshot], Any], first_evaluations: int) -> None:
        self._callback, self._first_evaluations = callback, first_evaluations
        self.asked = False

    def chunk(self, run: SingleRun, chunk: Chunk) -> str | None:
        with user_code():
            answer = self._callback(FitSnapshot.of(run, chunk, self._first_evaluations))
        self.asked = isinstance(answer, (bool, np.bool_)) and bool(answer)
        return "callback" if self.asked else None


Answer = TypeVar("Answer")


def told(callback: Callable[[FitSnapshot], Any] | None, result: Answer) -> Answer:
    """The result, after a callback with a method ``finished`` was given it."""
    finished = getattr(callback, "finished", None)
    if callable(finished):
        with user_code():
            finished(result)
    return result
