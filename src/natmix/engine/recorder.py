"""What observes a run: the protocol of recorders."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from natmix.engine.runner import Chunk
    from natmix.engine.single_run import SingleRun


class Recorder:
    """Observes one run; every method may be left out.

    The loop calls ``started`` once before the first chunk, ``chunk`` after every chunk of at least one
    iteration, and then ``finished`` if the run has ended by a limit or a recorder, or ``failed`` if by an
    error; in the order in which the recorders are listed. A run that is interrupted ends with neither: it can
    go on from whatever a recorder has stored.

    A recorder must not change the run. It may read ``run.state`` while it is called; the next chunk gives the
    state's memory away, so it copies (`jax.device_get`) what it wants to keep. Time that should not count it
    spends under ``with run.clock.pause():``.
    """

    def started(self, run: "SingleRun") -> None:
        """Before the first chunk; ``run.iterations`` is not 0 if the run goes on from a checkpoint."""

    def chunk(self, run: "SingleRun", chunk: "Chunk") -> str | None:
        """After a chunk, whose iterations ``run`` has counted already.

        Returns:
            A reason to end the run, which becomes ``run.stopped``, or None. The first reason counts, and
            counts more than a limit that was reached in this chunk (``run.stopped`` during the call).
        """
        return None

    def finished(self, run: "SingleRun") -> None:
        """After the last chunk; ``run.stopped`` says why it was the last."""

    def failed(self, run: "SingleRun") -> None:
        """An error, ``run.failure``, has ended the run."""
