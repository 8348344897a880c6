"""The trajectory of a run: the numbers of every iteration."""

from collections.abc import Mapping

import numpy as np

from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun


class TrajectoryRecorder(Recorder):
    """Keeps every field of `natmix.Info`, and the run's clock as ``seconds``, over the iterations."""

    def __init__(self, stored: Mapping[str, np.ndarray] | None = None) -> None:
        """Start empty, or continue the ``stored`` trajectory."""
        self._chunks: list[Mapping[str, np.ndarray]] = [stored] if stored else []

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        seconds = np.linspace(run.chunk_start, run.seconds, len(chunk) + 1)[1:]
        self._chunks.append({**chunk.infos, "seconds": seconds})

    def restore(self, stored: Mapping[str, np.ndarray]) -> None:
        """Continue a stored trajectory."""
        self._chunks = [stored] if stored else []

    def arrays(self) -> dict[str, np.ndarray]:
        """Name to values, one per iteration."""
        if len(self._chunks) > 1:
            self._chunks = [{k: np.concatenate([c[k] for c in self._chunks]) for k in self._chunks[0]}]
        return dict(self._chunks[0]) if self._chunks else {}
