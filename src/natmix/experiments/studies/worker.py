"""A process that runs trials: ``python -m natmix.experiments.studies.worker FOLDER``.

It reads numbers of trials from its standard input, one per line, and answers with lines of JSON. When its
input ends, because its client closed it or died, the trial that runs leaves a checkpoint and the process
ends.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from natmix.experiments.studies.own_device import own_device
from natmix.interrupts import Interrupt


def main(folder: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a model prints must not be taken for an answer
    own_device()
    from natmix.experiments.studies.trial_attempt import attempt_trial

    interrupt = Interrupt()
    numbers: list[int] = []
    ready = threading.Condition()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which closes the input
    signal.signal(signal.SIGTERM, lambda *_: _stop(interrupt))
    threading.Thread(target=_read, args=(numbers, ready, interrupt), daemon=True).start()
    while not interrupt.asked:
        with ready:
            while not numbers and not interrupt.asked:
                ready.wait(1.0)
            if interrupt.asked:
                return
            number = numbers.pop(0)
        report = attempt_trial(Path(folder), number, interrupt)
        answers.write(json.dumps({"number": number, "report": report}) + "\n")
        answers.flush()


def _stop(interrupt: Interrupt) -> None:
    interrupt.asked = True


def _read(numbers: list[int], ready: threading.Condition, interrupt: Interrupt) -> None:
    for line in sys.stdin:
        with ready:
            numbers.append(int(line))
            ready.notify()
    interrupt.asked = True
    with ready:
        ready.notify()


if __name__ == "__main__":
    main(sys.argv[1])
