"""Short runs of the tiny problem, and a watcher that keeps what it is told."""

from tiny_problem import SMALL, tiny

from natmix.experiments import runs
from natmix.experiments.runs import Limits
from natmix.experiments.runs.watcher import Silence

LONG = Limits(max_iterations=60)


def configuration(limits=LONG, **changes):
    return runs.configure(tiny(), overrides=SMALL, dtype="float64", limits=limits, **changes)


def execute(out, seeds=(0,), limits=LONG, **arguments):
    changes = {k: arguments.pop(k) for k in ("components", "covariance", "algorithm") if k in arguments}
    return runs.execute(
        configuration(limits, **changes), seeds, out, arguments.pop("load", tiny), **arguments
    )


class EventWatcher(Silence):
    def __init__(self, on_update=lambda snapshot: None):
        self.events = []
        self.on_update = on_update

    def skipped(self, seed):
        self.events.append(("skipped", seed))

    def started(self, seed, resumed_at, anew):
        self.events.append(("began anew" if anew else "began", seed, resumed_at))

    def update(self, snapshot):
        self.on_update(snapshot)

    def finished(self, snapshot, final):
        self.events.append(("finished", snapshot.seed, final["stopped"]))

    def failed(self, seed, error):
        self.events.append(("failed", seed, error))
