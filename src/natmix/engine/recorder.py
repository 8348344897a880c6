"""What observes a run: the protocol of recorders."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from natmix.engine.runner import Chunk
    from natmix.engine.single_run import SingleRun


class Recorder:
    """Observes one run; every method may be left out.

    The loop calls ``started`` once before the first chunk and ``chunk`` after every chunk of at least one
    iteration. It calls ``finished`` when a limit or a recorder has ended the run, and ``failed`` when an
    error has. Recorders are called in the order in which they are listed. For an interrupted run neither is
    called: it can be resumed from what a recorder has stored.

    A recorder must not change the run. It may read ``run.state`` while it is called. The next chunk donates
    the state's memory, so a recorder copies (`jax.device_get`) what it keeps. Work that should not count as
    the run's time goes under ``with run.clock.pause():``.
    """

    def started(self, run: "SingleRun") -> None:
        """Before the first chunk; ``run.iterations`` is not 0 if the run resumes from a checkpoint."""

    def chunk(self, run: "SingleRun", chunk: "Chunk") -> str | None:
        """After a chunk, whose iterations ``run`` has counted already.

        Returns:
            A reason to end the run, which becomes ``run.stopped``, or None. The first reason is used, even if
            a limit was reached in this chunk (``run.stopped`` during the call).
        """
        return None

    def finished(self, run: "SingleRun") -> None:
        """After the last chunk; ``run.stopped`` says why it was the last."""

    def failed(self, run: "SingleRun") -> None:
        """An error, ``run.failure``, has ended the run."""
