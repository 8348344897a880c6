"""Study files, and pools that end trials without running anything."""

import heapq

import numpy as np

from natmix.experiments.studies.definition import StudyChanges
from natmix.experiments.studies.pools import AbstractPool, PoolReport
from natmix.experiments.studies.study_file import read_study
from natmix.experiments.studies.study_folder import StudyFolder, TrialOutcome
from natmix.experiments.studies.trial_attempt import planned_trial, study_in

SMALL = """
problems = ["gmm2"]
codenames = ["S[AE]MTRUX"]
storage = "none"

[budget]
iterations = 20

[search]
sampler = "random"
trials = 3
batch = 2

[[space]]
start.components = { low = 1, high = 4, integer = true }
component_stepsize.stepsize = { low = 1e-2, high = 1.0, log = true }
component_adaptation.add_iters = [10, 20]
component_adaptation.prior_candidates = 10
sample_selector.desired_samples = 20
"""


def study_of(folder, text=SMALL, **changes):
    """The study of a file with this text."""
    path = folder / "study.toml"
    path.write_text(text)
    return read_study(path, StudyChanges(**changes))


def value_of(trial):
    """An objective with one best stepsize."""
    stepsize = trial.settings.get("component_stepsize.stepsize", 0.1)
    return float(np.log10(stepsize / 0.2) ** 2 + trial.seed / 100)


def outcome_of(number, value, **changes):
    """How a trial might have ended."""
    usual = {
        "state": "complete",
        "value": value,
        "neg_elbo": value,
        "neg_elbo_se": 0.1,
        "iterations": 20,
        "evaluations": 400,
        "seconds": 1.0,
        "compile_seconds": 0.5,
        "components": 3,
        "attempts": 1,
        "reason": "max_iterations",
        "curve": [value + 1, value],
    }
    return TrialOutcome(number=number, **{**usual, **changes})


class SimulatedPool(AbstractPool):
    """Workers whose trials take simulated time and end with `value_of`.

    Attributes:
        order: the trials in the order in which they ended.
    """

    def __init__(self, folder, workers=1, seed=0, report=lambda number: "done"):
        self.folder, self.order = StudyFolder(folder), []
        self._workers, self._rng, self._report = workers, np.random.default_rng(seed), report
        self._now, self._running = 0.0, []

    @property
    def free(self):
        return self._workers - len(self._running)

    def submit(self, number):
        heapq.heappush(self._running, (self._now + self._rng.exponential(), number))

    def wait(self, seconds):
        if not self._running:
            return []
        self._now, number = heapq.heappop(self._running)
        report = self._report(number)
        if report == "done":
            trial = planned_trial(self.folder, study_in(self.folder), number)
            with self.folder.claim(number) as mine:
                assert mine
                assert self.folder.outcome(number) is None, f"trial {number} was run twice"
                self.folder.write_outcome(outcome_of(number, value_of(trial)))
            self.order.append(number)
        return [PoolReport(number, report)]

    def close(self):
        self._running = []
