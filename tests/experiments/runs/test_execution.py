"""Runs: they stop, go on, are killed, and leave directories that can be read."""

import dataclasses
import json
import os
import shutil
import signal
import types

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from small_runs import EventWatcher, configuration, execute
from tiny_problem import SMALL, TRACES, tiny

from natmix import Mixture
from natmix.experiments import runs
from natmix.experiments.runs import Limits, load_run
from natmix.experiments.runs.directory import mismatch
from natmix.experiments.runs.execution import LOCKS

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Two seeds without interruption."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    jax.clear_caches()  # other tests may have the same program
    traced = []

    def load(seed):
        traced.append(len(TRACES))
        return tiny(seed)

    outcome = execute(out, (0, 1), load=load, keep_checkpoints=True)
    return types.SimpleNamespace(out=out, outcome=outcome, traced=[*traced, len(TRACES)])


@pytest.fixture
def small_chunks(monkeypatch):
    """So that there are many moments to stop at."""
    monkeypatch.setattr("natmix.engine.single_run.CHUNK_SECONDS", 0.0)


def stored_state(out, seed=0):
    stored = load_file(out / f"seed-{seed}" / "checkpoint" / "state.safetensors")
    return {name: value for name, value in stored.items() if name.startswith("state.")}


def assert_same_as_whole(out, whole, seed=0):
    there, here = stored_state(whole.out, seed), stored_state(out, seed)
    assert there.keys() == here.keys()
    for name, value in there.items():
        np.testing.assert_array_equal(value, here[name], err_msg=name)
    a, b = load_run(whole.out).seeds[seed], load_run(out).seeds[seed]
    assert a.trace.keys() == b.trace.keys()
    for name in a.trace.keys() - {"seconds"}:
        np.testing.assert_array_equal(a.trace[name], b.trace[name], err_msg=name)
    assert len(b.trace["seconds"]) == 60
    for name in ("neg_elbo", "neg_elbo_se", "iterations", "evaluations", "components", "first_mean"):
        assert a.final[name] == b.final[name], name
    assert np.all(np.diff(b.metrics["iterations"]) > 0)
    assert np.all(np.diff(b.metrics["seconds"]) > 0)
    assert np.all(np.diff(b.trace["seconds"]) >= 0)


# What a run leaves ------------------------------------------------------------------------------


def test_the_files_of_a_finished_run(whole):
    assert not whole.outcome.interrupted
    assert whole.outcome.failed == ()
    found = {p.name for p in whole.out.iterdir()}
    assert found == {"config.json", "environment.json", "seed-0", "seed-1", LOCKS}
    names = {p.name for p in (whole.out / "seed-0").iterdir()}
    expected = {
        "metrics.jsonl",
        "trace.safetensors",
        "weights.safetensors",
        "checkpoint",
        "mixture.safetensors",
        "final.json",
    }
    assert names == expected


def test_what_the_files_hold(whole):
    run = load_run(whole.out)
    assert run.problem == "tiny"
    assert run.codename == "SAMTRON"
    assert run.config["seeds"] == [0, 1]
    assert run.config["limits"]["max_iterations"] == 60
    assert run.environment["cpu_count"] == os.cpu_count()
    assert list(run.seeds) == [0, 1]
    seed = run.seeds[1]
    assert len(seed.trace["elbo"]) == 60
    assert seed.trace["added"].sum() > 3
    assert seed.trace["deleted"].sum() > 3
    assert seed.final["iterations"] == 60
    assert seed.final["evaluations"] == seed.trace["evaluations"].sum() == seed.metrics["evaluations"][-1]
    assert seed.final["stopped"] == "max_iterations"
    assert seed.final["seconds"] >= seed.final["compile_seconds"] > 0
    assert seed.final["neg_elbo"] == seed.metrics["neg_elbo"][-1]
    assert isinstance(seed.mixture, Mixture)
    assert seed.mixture.num_components == seed.final["components"]
    assert seed.failure is None


def test_the_metrics_are_minus_elbos(whole):
    seed = load_run(whole.out).seeds[0]
    problem = tiny(0)
    x = np.asarray(seed.mixture.sample(5000, key=5))
    centres = np.asarray(problem.target.fn.centres)
    log_p = np.log(np.exp(-0.5 * ((x[:, None] - centres) ** 2).sum(-1)).sum(-1))
    ratio = np.asarray(seed.mixture.log_prob(x)) - log_p
    error = np.hypot(ratio.std() / np.sqrt(5000), seed.final["neg_elbo_se"])
    assert seed.final["neg_elbo"] == pytest.approx(ratio.mean(), abs=5 * error + 1e-6)
    assert seed.final["neg_elbo"] >= -problem.log_evidence - 5 * error
    assert seed.metrics["neg_elbo"][0] > seed.metrics["neg_elbo"][-1]


def test_the_weights_over_time(whole):
    seed = load_run(whole.out).seeds[0]
    history = seed.weights
    assert history.iterations[0] == 1
    assert history.iterations[-1] == 60
    for t in range(len(history)):
        ids, weights = history.at(t)
        assert weights.sum() == pytest.approx(1, abs=1e-5)
        assert np.all(np.diff(ids) > 0)
        assert len(ids) == seed.trace["components"][history.iterations[t] - 1]


def test_the_metrics_of_the_problem_are_among_the_final_numbers(whole):
    seed = load_run(whole.out).seeds[0]
    assert seed.final["first_mean"] == pytest.approx(float(seed.mixture.mean()[0]))


def test_seeds_differ_and_share_one_program(whole):
    run = load_run(whole.out)
    assert run.seeds[0].final["neg_elbo"] != run.seeds[1].final["neg_elbo"]
    before, between, after = whole.traced
    assert before < between == after
    assert run.seeds[1].final["compile_seconds"] < run.seeds[0].final["compile_seconds"]


def test_a_seed_alone_is_the_same_as_among_others(whole, tmp_path):
    execute(tmp_path / "alone", (1,), keep_checkpoints=True)
    assert_same_as_whole(tmp_path / "alone", whole, 1)


# Going on ---------------------------------------------------------------------------------------


def test_raised_limits_go_on_as_if_never_stopped(whole, tmp_path):
    out = tmp_path / "run"
    first = execute(out, limits=Limits(max_iterations=23), keep_checkpoints=True)
    assert first.run.seeds[0].final["iterations"] == 23
    watcher = EventWatcher()
    execute(out, keep_checkpoints=True, watcher=watcher)
    assert watcher.events == [("began", 0, 23), ("finished", 0, "max_iterations")]
    assert_same_as_whole(out, whole)
    assert load_run(out).seeds[0].final["seconds"] > first.run.seeds[0].final["seconds"]


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_a_run_that_goes_on_as_if_never_stopped(kind, whole, tmp_path, small_chunks):
    out = tmp_path / "run"

    def press(snapshot):
        if snapshot.iterations > 20:
            os.kill(os.getpid(), kind)

    outcome = execute(out, (0, 1), watcher=EventWatcher(press), keep_checkpoints=True)
    assert outcome.interrupted
    assert signal.getsignal(kind) in (signal.SIG_DFL, signal.default_int_handler)
    assert list(outcome.run.seeds) == [0]
    assert outcome.run.finished == {}
    stopped_at = len(outcome.run.seeds[0].trace["elbo"])
    assert 20 < stopped_at < 60
    watcher = EventWatcher()
    execute(out, (0, 1), watcher=watcher, keep_checkpoints=True)
    assert watcher.events[0] == ("began", 0, stopped_at)
    assert_same_as_whole(out, whole, 0)
    assert_same_as_whole(out, whole, 1)


class Killed(BaseException):
    """Not caught anywhere, like a signal that cannot be caught."""


def test_a_killed_run_can_be_read_and_goes_on_from_its_checkpoint(whole, tmp_path, small_chunks, monkeypatch):
    monkeypatch.setattr("natmix.engine.checkpoint_schedule.COST_SHARE", 0)
    out = tmp_path / "run"
    seen = []

    def kill(snapshot):
        seen.append(snapshot.iterations)
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        execute(out, watcher=EventWatcher(kill), checkpoint_seconds=0.0)
    # Metrics and traces may have been written after the checkpoint; they are not counted twice.
    later = out / "seed-0" / "metrics.jsonl"
    rows = [json.loads(line) for line in later.read_text().splitlines()]
    later.write_text("".join(json.dumps(r) + "\n" for r in [*rows, {**rows[-1], "iterations": 59}]))
    run = load_run(out)
    assert run.seeds[0].final is None
    assert len(run.seeds[0].trace["elbo"]) == seen[-1]
    with pytest.raises(FileNotFoundError, match="has not finished"):
        _ = run.seeds[0].mixture
    watcher = EventWatcher()
    execute(out, watcher=watcher, keep_checkpoints=True)
    assert watcher.events[0] == ("began", 0, seen[-1])
    assert_same_as_whole(out, whole)


def test_a_run_killed_before_its_first_checkpoint_starts_anew(whole, tmp_path):
    out = tmp_path / "run"

    def kill(snapshot):
        raise Killed

    with pytest.raises(Killed):
        execute(out, watcher=EventWatcher(kill))
    assert load_run(out).seeds[0].trace == {}
    watcher = EventWatcher()
    execute(out, watcher=watcher, keep_checkpoints=True)
    assert watcher.events[0] == ("began anew", 0, 0)
    assert_same_as_whole(out, whole)


def test_the_first_checkpoint_comes_early(tmp_path, small_chunks, monkeypatch):
    monkeypatch.setattr("natmix.engine.checkpoint_schedule.FIRST_CHECKPOINT_SECONDS", 0.0)
    out, seen = tmp_path / "run", []

    def kill(snapshot):
        seen.append(snapshot.iterations)
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        execute(out, watcher=EventWatcher(kill), checkpoint_seconds=1e9)
    watcher = EventWatcher()
    execute(out, watcher=watcher)
    assert watcher.events[0] == ("began", 0, seen[0])  # and no second one followed it


def test_finished_seeds_are_skipped_and_new_ones_added(whole, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(whole.out, out)
    before = (out / "seed-0" / "final.json").read_bytes()
    watcher = EventWatcher()
    outcome = execute(out, (0, 5), watcher=watcher)
    assert watcher.events == [("skipped", 0), ("began", 5, 0), ("finished", 5, "max_iterations")]
    assert (out / "seed-0" / "final.json").read_bytes() == before
    assert outcome.run.config["seeds"] == [0, 1, 5]
    assert not (out / "seed-5" / "checkpoint").exists()


def test_lower_limits_change_nothing(whole, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(whole.out, out)
    watcher = EventWatcher()
    execute(out, (0,), limits=Limits(max_iterations=30), watcher=watcher)
    assert watcher.events == [("skipped", 0)]


def test_higher_limits_need_the_checkpoint(whole, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(whole.out, out)
    shutil.rmtree(out / "seed-0" / "checkpoint")
    with pytest.raises(ValueError, match=r"Seed 0 in .* checkpoint was not kept"):
        execute(out, (0,), limits=Limits(max_iterations=90))


# Refusals ---------------------------------------------------------------------------------------


def test_another_configuration_is_refused_by_name(whole):
    with pytest.raises(ValueError, match=r"holds another run: start.components is 1 there and 2 here"):
        execute(whole.out, components=2)
    names = [(f"algorithm.settings.m.{k}", 1, 2) for k in "abcdefg"]
    assert "(and 6 more, among them algorithm.m.b, algorithm.m.c, algorithm.m.d); " in mismatch(
        whole.out, names
    )
    assert "(and 2 more: algorithm.m.b, algorithm.m.c); " in mismatch(whole.out, names[:3])
    config = configuration()
    other = dataclasses.replace(
        config, algorithm=runs.configure(tiny(), "samtrux", overrides=SMALL).algorithm
    )
    with pytest.raises(ValueError, match=r'algorithm\.codename is "SAMTRON" there and "SAMTRUX" here'):
        runs.execute(other, [0], whole.out, tiny)


def test_a_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="holds other files and no run"):
        execute(tmp_path)


def test_an_impossible_folder_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")

    def load(seed):
        raise AssertionError("work was started")

    with pytest.raises(OSError, match="Not a directory"):
        execute(tmp_path / "file" / "run", load=load)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="Permission denied"):
        execute(tmp_path / "run")


def test_too_few_evaluations_are_refused(tmp_path):
    with pytest.raises(ValueError, match="10 evaluations are not enough: the first iteration needs 20"):
        execute(tmp_path / "run", limits=Limits(max_evaluations=10))


def test_reading_what_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run directory"):
        load_run(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"has no config\.json"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text('{"format": ')
    with pytest.raises(ValueError, match="damaged"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="another version"):
        load_run(tmp_path)
