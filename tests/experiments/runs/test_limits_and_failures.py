"""Runs end at their limits; seeds and metrics that fail do not lose the run."""

import dataclasses

import numpy as np
import pytest
from small_runs import EventWatcher, execute
from tiny_problem import tiny

from natmix.experiments.runs import Limits
from natmix.experiments.runs.execution import LOCKS
from natmix.files.lock import lock
from natmix.targets import TargetError

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_evaluations_are_never_exceeded(tmp_path):
    final = execute(tmp_path / "run", limits=Limits(max_evaluations=333)).run.seeds[0].final
    assert final["stopped"] == "max_evaluations"
    assert 250 < final["evaluations"] <= 333


def test_time_ends_a_run(tmp_path):
    final = execute(tmp_path / "run", limits=Limits(max_seconds=0.05)).run.seeds[0].final
    assert final["stopped"] == "max_seconds"
    assert final["seconds"] >= 0.05


def test_a_target_reached_ends_a_run(tmp_path):
    limits = Limits(max_iterations=500, until=100.0)
    final = execute(tmp_path / "run", limits=limits).run.seeds[0].final
    assert final["stopped"] == "until"
    assert final["iterations"] == 1


def test_a_failing_seed_is_recorded_and_the_others_go_on(tmp_path):
    def load(seed):
        return tiny(centres=np.full((2, 2), np.nan)) if seed == 0 else tiny(seed)

    watcher = EventWatcher()
    outcome = execute(tmp_path / "run", (0, 1), load=load, watcher=watcher)
    assert outcome.failed == (0,)
    assert [e[:2] for e in watcher.events] == [("began", 0), ("failed", 0), ("began", 1), ("finished", 1)]
    assert "not finite anywhere" in outcome.run.seeds[0].failure["error"]
    assert outcome.run.seeds[0].final is None
    assert outcome.run.seeds[1].final is not None
    # The next call tries again.
    again = execute(tmp_path / "run", (0,))
    assert again.failed == ()
    assert again.run.seeds[0].failure is None
    assert again.run.seeds[0].final is not None


def test_metrics_that_fail_do_not_lose_the_run(tmp_path):
    def load(seed):
        def broken(mixture, key):
            raise TargetError("no reference")

        return dataclasses.replace(tiny(seed), secondary={"broken": broken})

    final = execute(tmp_path / "run", load=load).run.seeds[0].final
    assert final["iterations"] == 60
    assert "no reference" in final["metrics_error"]


def test_two_processes_do_not_run_the_same_seed(tmp_path):
    execute(tmp_path / "run", (0,), Limits(max_iterations=1))
    with lock(tmp_path / "run" / LOCKS / "seed-1", wait=False) as mine:
        assert mine
        with pytest.raises(ValueError, match=r"Seed 1 .* being run by another process"):
            execute(tmp_path / "run", (0, 1), Limits(max_iterations=1))
