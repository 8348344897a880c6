"""A process that runs trials: ``python -m natmix.experiments.studies.worker FOLDER SLOTS PLACE PROCESSES``.

It reads numbers of trials from its standard input, one per line, and answers with lines of JSON; it runs as
many at once as it has slots, on its share of the cores. When its input ends, because its client closed it or
died, the trials that run leave checkpoints and the process ends.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TextIO

from natmix.experiments.studies.own_cores import CoreShare, own_cores
from natmix.experiments.studies.own_device import own_device
from natmix.interrupts import Interrupt


def main(folder: str, slots: int, share: CoreShare) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a model prints must not be taken for an answer
    try:
        own_device()
    except ValueError as error:
        sys.exit(f"natmix: {error}")
    own_cores(share)
    from natmix.experiments.studies.trial_slots import TrialSlots

    _answer(answers, ready=True)
    interrupt = Interrupt()
    numbers: list[int] = []
    arrived = threading.Condition()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which closes the input
    signal.signal(signal.SIGTERM, lambda *_: _stop(interrupt))
    threading.Thread(target=_read, args=(numbers, arrived, interrupt), daemon=True).start()
    trials = TrialSlots(Path(folder), slots, interrupt)
    while not interrupt.asked:
        with arrived:
            while not numbers and not trials.held and not interrupt.asked:
                arrived.wait(1.0)
            for number in numbers:
                trials.submit(number)
            numbers.clear()
        for number, report in trials.advance():
            _answer(answers, number=number, report=report)
    trials.close()


def _answer(answers: TextIO, **content: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # the client is gone; the input ends, too
        answers.write(json.dumps(content) + "\n")
        answers.flush()


def _stop(interrupt: Interrupt) -> None:
    interrupt.asked = True


def _read(numbers: list[int], arrived: threading.Condition, interrupt: Interrupt) -> None:
    for line in sys.stdin:
        with arrived:
            numbers.append(int(line))
            arrived.notify()
    interrupt.asked = True
    with arrived:
        arrived.notify()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), CoreShare(int(sys.argv[3]), int(sys.argv[4])))
