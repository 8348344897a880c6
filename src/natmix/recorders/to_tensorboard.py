"""A recorder for TensorBoard, by tensorboardX: it writes event files and needs no TensorFlow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from natmix.recorders.base import AbstractFitLog, flat_settings
from natmix.result.result import Result
from natmix.text.extras import needs


def tensorboard(folder: str | Path) -> "TensorboardLog":
    """A callback that writes events for TensorBoard, ``natmix.fit(..., callback=tensorboard("logs"))``.

    ``tensorboard --logdir logs`` shows them, with the verdict and the settings under Text. It needs the
    extra ``tensorboard``.

    Args:
        folder: for the event files, one folder for each fit; made if it does not exist.
    """
    return TensorboardLog(folder)


class TensorboardLog(AbstractFitLog):
    """What `tensorboard` returns."""

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        with needs("tensorboardX", "tensorboard", "natmix.recorders.tensorboard"):
            from tensorboardX import SummaryWriter
        self._folder, self._make = str(folder), SummaryWriter
        self._writer: Any = None
        self._step = 0

    def _start(self) -> None:
        self._writer = self._make(self._folder)

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        self._step = step
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def _end(self, numbers: Mapping[str, float], words: Mapping[str, str], result: Result) -> None:
        self._log(numbers, result.counts.iterations)
        for name, text in words.items():
            self._writer.add_text(f"natmix/{name}", text, self._step)
        rows = [f"| {name} | {value} |" for name, value in flat_settings(result.settings).items()]
        self._writer.add_text("natmix/settings", "\n".join(["| setting | |", "|---|---|", *rows]), self._step)

    def _stop(self, failed: bool) -> None:
        self._writer.close()
