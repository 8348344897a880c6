"""A recorder for Weights & Biases."""

from collections.abc import Mapping
from typing import Any

from natmix.recorders.base import AbstractFitLog, flat_settings
from natmix.result.result import Result
from natmix.text.extras import needs


def wandb(run: Any = None, **init: Any) -> "WandbLog":
    """A callback that logs to Weights & Biases, ``natmix.fit(..., callback=wandb(project="schools"))``.

    The verdict is in the run's summary and the settings in its config. It needs the extra ``wandb``.

    Args:
        run: a run of yours, which stays open; otherwise `wandb.init` makes one at the first iteration, and it
            is finished with the fit.
        **init: arguments of `wandb.init`, for example ``project``, ``name``, or ``mode="offline"`` for a
            machine without a network (``wandb sync`` uploads it later).
    """
    if run is not None and init:
        raise ValueError(f"Give a run, or arguments of wandb.init ({', '.join(init)}), not both.")
    return WandbLog(run, init)


class WandbLog(AbstractFitLog):
    """What `wandb` returns."""

    def __init__(self, run: Any, init: Mapping[str, Any]) -> None:
        super().__init__()
        with needs("wandb", "wandb", "natmix.recorders.wandb"):
            import wandb as library
        self._library, self._given, self._init = library, run, dict(init)
        self._run: Any = None

    def _start(self) -> None:
        self._run = self._library.init(**self._init) if self._given is None else self._given
        # Of its own axis: a run of the user's may log other things meanwhile, and its steps only grow.
        self._run.define_metric("natmix/iteration")
        self._run.define_metric("natmix/*", step_metric="natmix/iteration")

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log({**numbers, "natmix/iteration": step})

    def _end(self, numbers: Mapping[str, float], words: Mapping[str, str], result: Result) -> None:
        named = {f"natmix/final/{name}": text for name, text in words.items()}
        self._run.summary.update({**numbers, **named})
        settings = {f"natmix.{name}": value for name, value in flat_settings(result.settings).items()}
        self._run.config.update(settings, allow_val_change=True)

    def _stop(self, failed: bool) -> None:
        if self._given is None:
            self._run.finish(exit_code=int(failed))
