"""Seeds that run in a batch leave what they leave alone, within the same limits."""

import time

import numpy as np
import pytest
from plans import GPU
from run_command import assert_one_sentence, natmix
from small_runs import EventWatcher
from tiny_problem import SMALL, tiny

from natmix.engine.batch_runner import BatchRunner
from natmix.experiments import runs
from natmix.experiments.runs import Limits, load_run
from natmix.experiments.runs import batch_choice as choice
from natmix.experiments.runs.final import FinalRecorder
from natmix.experiments.runs.seed import Seed
from natmix.kernels.plan import using

pytestmark = pytest.mark.usefixtures("quick_compilation")

SEEDS = (0, 1, 2)
ITERATIONS = 30


def configuration(limits=None, dtype="float64", **overrides):
    changed = {module: {**SMALL.get(module, {}), **values} for module, values in overrides.items()}
    limits = limits or Limits(max_iterations=ITERATIONS)
    return runs.configure(tiny(dtype=dtype), overrides={**SMALL, **changed}, dtype=dtype, limits=limits)


# Whole runs -------------------------------------------------------------------------------------


def execute(out, seeds=SEEDS, together=True, limits=None, load=tiny, **arguments):
    return runs.execute(configuration(limits), seeds, out, load, together=together, **arguments)


def assert_runs_agree(here, there, seeds=SEEDS):
    for seed in seeds:
        a, b = load_run(here).seeds[seed], load_run(there).seeds[seed]
        for name in a.trace.keys() - {"seconds"}:
            np.testing.assert_allclose(a.trace[name], b.trace[name], rtol=1e-6, atol=1e-9, err_msg=name)
        for name in ("iterations", "evaluations", "components", "stopped"):
            assert a.final[name] == b.final[name], name
        np.testing.assert_allclose(a.final["neg_elbo"], b.final["neg_elbo"], rtol=1e-6)


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "apart"
    execute(out, together=False)
    return out


def test_runs_together_leave_what_runs_apart_leave(apart, tmp_path):
    watcher = EventWatcher()
    outcome = execute(tmp_path / "run", watcher=watcher)
    assert outcome.failed == ()
    assert [e[:2] for e in watcher.events] == [("began", s) for s in SEEDS] + [("finished", s) for s in SEEDS]
    assert_runs_agree(tmp_path / "run", apart)


def test_unfinished_seeds_go_on_with_those_at_the_same_iteration(apart, tmp_path, monkeypatch):
    monkeypatch.setattr("natmix.engine.single_run.CHUNK_SECONDS", 0.0)
    out = tmp_path / "run"

    execute(out, limits=Limits(max_iterations=17), keep_checkpoints=True)
    execute(out, seeds=(1,), limits=Limits(max_iterations=20), together=False, keep_checkpoints=True)
    # Seeds 0 and 2 are at the same iteration, and seed 1 goes on apart.
    watcher = EventWatcher()
    execute(out, watcher=watcher)
    assert watcher.events[:2] == [("began", 0, 17), ("began", 2, 17)]
    assert watcher.events[-2:] == [("began", 1, 20), ("finished", 1, "max_iterations")]
    assert_runs_agree(out, apart)


def test_each_seed_keeps_its_own_budget(tmp_path):
    limits = Limits(max_evaluations=2000, max_iterations=200)
    outs = [tmp_path / name for name in ("together", "apart")]
    for out in outs:
        execute(out, limits=limits, together=out.name == "together")
    assert_runs_agree(*outs)
    finals = [s.final for s in load_run(outs[0]).seeds.values()]
    assert len({f["iterations"] for f in finals}) > 1
    assert all(1700 < f["evaluations"] <= 2000 for f in finals)


def test_a_limit_of_time_ends_a_batch_at_once(tmp_path, monkeypatch):
    """However long it took to start one seed, or to finish another."""
    fresh, finished, compiled = Seed._fresh, FinalRecorder.finished, BatchRunner._compiled
    programs = []
    monkeypatch.setattr(Seed, "_fresh", lambda *arguments: (time.sleep(0.2), fresh(*arguments))[1])  # type: ignore[func-returns-value]

    def slowly_finished(self, run):
        with run.clock.pause():
            time.sleep(0.5)
            finished(self, run)

    def counted(self, batch):
        programs.append(batch.size)
        return compiled(self, batch)

    monkeypatch.setattr(FinalRecorder, "finished", slowly_finished)
    monkeypatch.setattr(BatchRunner, "_compiled", counted)
    limits = Limits(max_run_seconds=3.0, max_iterations=10**6)
    execute(tmp_path / "run", limits=limits)
    finals = [seed.final for seed in load_run(tmp_path / "run").seeds.values()]
    assert len({f["iterations"] for f in finals}) == 1
    assert {f["stopped"] for f in finals} == {"max_run_seconds"}
    assert set(programs) == {len(SEEDS)}  # no seed went on in a smaller batch


def test_a_failing_seed_leaves_the_batch(apart, tmp_path):
    def load(seed):
        return tiny(centres=np.full((2, 2), np.nan)) if seed == 7 else tiny(seed)

    outcome = execute(tmp_path / "run", (7, 0, 1), load=load)
    assert outcome.failed == (7,)
    assert_runs_agree(tmp_path / "run", apart, (0, 1))


def test_a_batch_that_breaks_goes_on_apart_unless_together_was_asked_for(apart, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "faster_together", lambda *_: True)
    monkeypatch.setattr(
        BatchRunner, "advance_batch", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory"))
    )
    outcome = execute(tmp_path / "run", together=None)
    assert outcome.failed == ()
    assert_runs_agree(tmp_path / "run", apart)
    assert execute(tmp_path / "other", together=True).failed == SEEDS


def test_a_batch_that_has_grown_too_large_goes_on_apart(apart, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "faster_together", lambda algorithm, capacity, dim, seeds: capacity <= 4)
    monkeypatch.setattr("natmix.experiments.runs.seed.initial_capacity", lambda algorithm, components, dim: 4)
    monkeypatch.setattr(choice, "initial_capacity", lambda algorithm, components, dim: 4)
    watcher = EventWatcher()
    outcome = execute(tmp_path / "run", together=None, watcher=watcher)
    began = [e for e in watcher.events if e[0] == "began"]
    assert began[:3] == [("began", s, 0) for s in SEEDS]
    assert [e[1] for e in began[3:]] == list(SEEDS)
    assert len({e[2] for e in began[3:]}) == 1
    assert 0 < began[3][2] < ITERATIONS
    assert outcome.failed == ()
    assert_runs_agree(tmp_path / "run", apart)


def test_targets_of_different_shapes_run_apart_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "faster_together", lambda *_: True)

    def load(seed):
        return tiny(centres=np.zeros((2 + seed, 2)))

    alone = []
    monkeypatch.setattr(
        "natmix.experiments.runs.execution._Execution.apart", lambda self, seeds: alone.extend(seeds)
    )
    execute(tmp_path / "run", (0, 1), None, Limits(max_iterations=3), load)
    assert alone == [0, 1]
    with pytest.raises(ValueError, match=r"cannot run together: .* differ in shape"):
        execute(tmp_path / "other", (0, 1), True, Limits(max_iterations=3), load)


def test_the_rule():
    algorithm = configuration().algorithm
    assert not choice.faster_together(algorithm, 8, 2, 5)  # a CPU
    assert choice.step_size(algorithm, 8, 2, 5) == 8 * 160 * 2 * 5
    with using(GPU):
        assert choice.faster_together(algorithm, 8, 2, 5)
        assert not choice.faster_together(algorithm, 8, 2, 1)
        assert not choice.faster_together(algorithm, 4096, 20, 5)


@pytest.mark.parametrize(("way", "together"), [((), None), (("--together",), True), (("--apart",), False)])
def test_the_command_line(way, together, tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise ValueError(f"together is {named['together']}")

    monkeypatch.setattr(runs, "execute", refuse)
    outcome = natmix("run", "gmm2", "--seeds", "0:2", "--max-iters", 3, "--out", tmp_path / "run", *way)
    assert_one_sentence(outcome, f"together is {together}")
