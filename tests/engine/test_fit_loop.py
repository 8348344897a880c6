"""The loop and its recorders, with a runner that only counts."""

import dataclasses
import os
import signal
import types

import numpy as np
import pytest

from natmix import Info, TargetError
from natmix.engine.clock import Clock
from natmix.engine.fit_loop import FitLoop
from natmix.engine.limits import Limits
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.interrupts import Interrupt
from natmix.targets.failures import FAILURES


class CountingRunner:
    """Every iteration takes 10 evaluations; the state is the number of iterations."""

    compile_seconds = 0.0
    shrink_every = 128

    def __init__(self, finite=True):
        self.finite, self.lengths = finite, []

    def advance_batch(self, states, iterations, budgets):
        affordable = [iterations if b is None else b // 10 for b in budgets]
        n = min(iterations, *affordable)
        self.lengths.append(n)
        infos = {f.name: np.zeros(n) for f in dataclasses.fields(Info)}
        infos["evaluations"] = np.full(n, 10)
        infos["zeros"] = np.full(n, 0 if self.finite else 10)
        return [
            Chunk(types.SimpleNamespace(at=s.at + n), infos, n == 0 and m == 0)  # type: ignore[arg-type]
            for s, m in zip(states, affordable, strict=True)
        ]


class Diary(Recorder):
    """Writes down what it is told; ends the run after some iterations."""

    def __init__(self, until=None, name="diary"):
        self.events, self.until, self.name = [], until, name

    def started(self, run):
        self.events.append(("started", run.iterations))

    def chunk(self, run, chunk):
        self.events.append((len(chunk), run.iterations))
        return self.name if self.until is not None and run.iterations >= self.until else None

    def finished(self, run):
        self.events.append(("finished", run.stopped))

    def failed(self, run):
        self.events.append(("failed", str(run.failure)))


def single(*recorders, **limits):
    return SingleRun(types.SimpleNamespace(at=0), Limits(**limits), Clock(), recorders)  # type: ignore[arg-type]


def loop(runs, chunk_ends=(20,), runner=None, failures=(), interrupt=None):
    return FitLoop(runner or CountingRunner(), runs, interrupt or Interrupt(), chunk_ends, failures)  # type: ignore[arg-type]


def test_recorders_see_every_chunk_and_the_end():
    diary = Diary()
    run = single(diary, max_iterations=45)
    loop([run]).run()
    lengths = [n for n, _ in diary.events[1:-1]]
    assert diary.events[0] == ("started", 0)
    assert sum(lengths) == run.iterations == run.state.at == 45
    assert run.evaluations == 450
    assert diary.events[-1] == ("finished", "max_iterations")


def test_chunks_cross_no_multiple_whatever_the_clock_says(monkeypatch):
    """The ends of chunks are where a run may be judged and its capacity may shrink."""
    for seconds in (0.0, 1e-5, 1e9):
        monkeypatch.setattr("natmix.engine.single_run.CHUNK_SECONDS", seconds)
        diary = Diary()
        loop([single(diary, max_iterations=300)], (20, 50)).run()
        ends = {at for _, at in diary.events[1:-1]}
        assert ends >= {*range(20, 301, 20), *range(50, 301, 50), 128, 256}
        assert len(ends) == (300 if seconds == 0 else len(ends))


def test_a_recorder_ends_a_run_and_counts_more_than_a_limit():
    first, second = Diary(until=40, name="first"), Diary(until=40, name="second")
    run = single(first, second, max_iterations=40)
    loop([run], (40,)).run()
    assert run.stopped == "first"
    assert second.events[-1] == ("finished", "first")


def test_a_budget_is_never_exceeded_and_an_empty_chunk_is_not_recorded():
    diary = Diary()
    run = single(diary, max_evaluations=125)
    run.aside = 20
    loop([run]).run()
    assert (run.stopped, run.evaluations) == ("max_evaluations", 100)
    assert min(n for n, _ in diary.events[1:-1]) > 0


def test_runs_of_a_batch_end_one_by_one():
    diaries = Diary(), Diary()
    runs = single(diaries[0], max_iterations=10), single(diaries[1], max_iterations=33)
    runs[1].clock = runs[0].clock
    loop(runs).run()
    assert [run.iterations for run in runs] == [10, 33]
    assert [d.events[-1] for d in diaries] == [("finished", "max_iterations")] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_run_unfinished_after_its_chunk(number):
    class Presses(Diary):
        def chunk(self, run, chunk):
            os.kill(os.getpid(), number)
            return super().chunk(run, chunk)

    diary, interrupt = Presses(), Interrupt()
    run = single(diary, max_iterations=100)
    ended = loop([run], interrupt=interrupt)
    with interrupt.watching():
        ended.run()
    assert (run.stopped, ended.active, ended.broken_off) == (None, [run], False)
    assert [e[0] for e in diary.events] == ["started", 1]


def test_a_target_that_is_finite_nowhere_fails_its_run():
    diary = Diary()
    run = single(diary, max_iterations=5)
    loop([run], runner=CountingRunner(finite=False)).run()
    assert run.stopped == "failed"
    assert run.evaluations == 10
    assert diary.events[-1][0] == "failed"
    assert "not finite anywhere" in diary.events[-1][1]


def test_an_error_of_the_runner_ends_the_loop():
    class Broken(CountingRunner):
        def advance_batch(self, states, iterations, budgets):
            raise RuntimeError("out of memory")

    diaries = Diary(), Diary()
    runs = [single(d, max_iterations=5) for d in diaries]
    ended = loop(runs, runner=Broken())
    ended.run()
    assert isinstance(ended.failure, TargetError)
    assert str(ended.failure) == "An iteration failed: RuntimeError: out of memory"
    assert isinstance(ended.failure.__cause__, RuntimeError)
    assert [run.stopped for run in runs] == [None, None]
    ended.fail_active()
    assert [d.events[-1][0] for d in diaries] == ["failed", "failed"]


@pytest.mark.parametrize("failures", [(), FAILURES])
def test_an_error_of_a_recorder_ends_its_run_or_the_loop(failures):
    class Raises(Recorder):
        def chunk(self, run, chunk):
            raise ValueError("no room on the disk")

    runs = [single(Raises(), max_iterations=5), single(max_iterations=5)]
    if not failures:
        with pytest.raises(ValueError, match="no room"):
            loop(runs).run()
        return
    loop(runs, failures=failures).run()
    assert [run.stopped for run in runs] == ["failed", "max_iterations"]
    assert "no room" in str(runs[0].failure)
