"""What `natmix watch` shows of a folder: fits, runs, damaged files, links."""

import json
import os
import platform
import shutil
import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import run_files
from quick_fits import LEAST

import natmix
from natmix.engine import checkpoint_schedule
from natmix.engine.progress_file import (
    MOST_POINTS,
    FitProgress,
    curves_of,
    finite_means,
    read_progress,
    write_progress,
)
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.history import WeightHistory
from natmix.watch import folder as folder_module
from natmix.watch.fit_view import fit_view
from natmix.watch.folder import WatchedFolder
from natmix.watch.view import QUIET_SECONDS, RunView, ago

HOSTILE = "<img src=x onerror=alert(1)>"


def trajectory(n=500):
    return {
        "elbo": np.linspace(-5, 0, n),
        "kl": np.geomspace(3, 0.02, n),
        "components": np.arange(n) // 100 + 1,
        "evaluations": np.full(n, 20),
        "seconds": np.linspace(1, 60, n),
    }


def progress(**changes) -> FitProgress:
    found: dict[str, Any] = {
        "algorithm": "SAMTRON",
        "dim": 3,
        "accuracy": 0.02,
        "limits": {"max_iterations": 10_000, "max_evaluations": 20_000, "max_seconds": None},
        "phase": "running",
        "iterations": 500,
        "evaluations": 10_100,
        "components": 5,
        "seconds": 60.0,
        "share": 0.5,
        "seconds_left": 60.0,
        "written": time.time(),
        "host": platform.node(),
        "process": os.getpid(),
        "notes": [],
        "curves": curves_of(trajectory(), 100),
    }
    return FitProgress(**(found | changes))  # type: ignore[typeddict-item]


def runs(folder) -> list[dict[str, Any]]:
    found = WatchedFolder(folder).data()
    json.dumps(found, allow_nan=False)
    return found["runs"]


def only(folder) -> dict[str, Any]:
    (found,) = runs(folder)
    return found


@pytest.fixture(scope="module")
def checkpointed(tmp_path_factory, quick_compilation):
    """The folder of a fit that has ended, with what it was told on the way."""
    folder = tmp_path_factory.mktemp("fits") / "my-fit"
    seen = []

    def callback(snapshot):
        seen.append((read_progress(folder / "progress.json")["phase"], snapshot))

    def target(x):
        return -0.5 * jnp.sum((x - 1.0) ** 2)

    before, checkpoint_schedule.COST_SHARE = checkpoint_schedule.COST_SHARE, 0
    options: dict[str, Any] = {**LEAST, "max_iterations": 60, "elbo_samples": 100, "verify": False}
    options |= {"checkpoint": folder, "checkpoint_seconds": 0.0, "callback": callback}
    try:
        return folder, natmix.fit(target, 2, **options), seen
    finally:
        checkpoint_schedule.COST_SHARE = before


# A fit --------------------------------------------------------------------------------------------


def test_a_fit_writes_its_progress(checkpointed):
    folder, result, seen = checkpointed
    assert seen[0][0] in ("compiling", "running")
    found = read_progress(folder / "progress.json")
    assert found["phase"] == result.stopped == "max_iterations"
    assert found["iterations"] == 60
    assert found["evaluations"] == result.counts.evaluations
    assert found["curves"]["iterations"][-1] == 60
    assert found["curves"]["evaluations"][-1] == result.trajectory["total_evaluations"][-1]
    assert found["process"] == os.getpid()


def test_a_fit_that_has_ended_is_shown_with_its_verdict(checkpointed):
    folder, result, _ = checkpointed
    found = only(folder)
    assert found["state"] == "ended"
    assert found["name"] == "my-fit"
    assert found["about"] == "SEMYDUX on 2 dimensions"
    assert (
        found["verdict"] == "undecided" or found["verdict"] in found["reasons"][0].lower() or found["reasons"]
    )
    assert found["evaluations"] == result.counts.evaluations
    assert found["elbo"] == pytest.approx(float(result.elbo.value))
    assert found["curves"]["components"][-1] == result.mixture.num_components


def test_without_its_result_the_progress_is_shown_and_without_that_the_checkpoint(checkpointed, tmp_path):
    shutil.copytree(checkpointed[0], tmp_path / "fit")
    (tmp_path / "fit" / "result.safetensors").unlink()
    by_progress = only(tmp_path / "fit")
    assert by_progress["state"] == "ended"
    assert by_progress["verdict"] == ""
    (tmp_path / "fit" / "progress.json").unlink()
    by_checkpoint = only(tmp_path / "fit")
    assert by_checkpoint["state"] == "running"
    assert by_checkpoint["iterations"] == 60
    for name in ("elbo", "kl", "components", "evaluations"):
        assert by_checkpoint["curves"][name] == by_progress["curves"][name], name


@pytest.mark.parametrize("name", ["result.safetensors", "progress.json", "state.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "folder"])
def test_a_damaged_file_is_told_and_another_one_is_shown(checkpointed, tmp_path, name, damage):
    """While a fit runs every file may be half written by another program that copies the folder."""
    shutil.copytree(checkpointed[0], tmp_path / "fit")
    path = tmp_path / "fit" / name
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        path.write_bytes({"cut": content[:-9], "empty": b"", "text": b"{"}.get(damage, content))
    found = only(tmp_path / "fit")
    assert found["state"] == "ended"
    assert found["iterations"] == 60
    if name == "result.safetensors" and damage != "folder":
        assert any(name in note and "damaged" in note for note in found["notes"])
    for other in ("result.safetensors", "progress.json", "state.safetensors", "state.previous.safetensors"):
        broken = tmp_path / "fit" / other
        if broken.is_file():
            broken.write_bytes(b"nonsense")
    if damage == "cut":
        assert only(tmp_path / "fit")["state"] == "unreadable"


def test_a_running_fit(tmp_path):
    write_progress(tmp_path / "progress.json", progress())
    found = only(tmp_path)
    assert (found["state"], found["detail"]) == ("running", "running")
    assert (found["share"], found["seconds_left"], found["goal"]) == (0.5, 60.0, 0.02)
    assert found["rate"] == pytest.approx(20 * 499 / 59, rel=0.05)
    assert found["kl"] == pytest.approx(0.02, rel=0.05)
    assert len(found["curves"]["elbo"]) == MOST_POINTS


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"phase": "compiling"}, "running", "compiling"),
        ({"phase": "checking"}, "running", "searches for other modes"),
        ({"phase": "interrupted"}, "interrupted", "interrupted; the same call goes on"),
        ({"phase": "failed"}, "failed", "raised an error"),
        ({"written": time.time() - 3 * QUIET_SECONDS}, "quiet", "running; no news for"),
        ({"host": "another", "process": 1, "written": time.time() - 90_000}, "quiet", "no news for 25 h"),
        ({"process": 2**22 + 7}, "quiet", "its process is gone"),
    ],
)
def test_the_state_of_a_fit_in_words(tmp_path, changes, state, words):
    if changes.get("phase") is None:
        changes = {"phase": "running", **changes}
    write_progress(tmp_path / "progress.json", progress(**changes))
    found = only(tmp_path)
    assert found["state"] == state
    assert words in found["detail"]


def test_an_unchanged_file_is_read_once_but_grows_older(tmp_path, monkeypatch):
    write_progress(tmp_path / "progress.json", progress())
    monkeypatch.setattr(folder_module, "_KEPT_SECONDS", -1.0)
    watched = WatchedFolder(tmp_path)
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return fit_view(*arguments)

    monkeypatch.setattr(folder_module, "fit_view", counted)
    assert watched.data()["runs"][0]["state"] == "running"
    later = time.time() + 10 * QUIET_SECONDS
    monkeypatch.setattr("natmix.watch.view.time.time", lambda: later)
    assert watched.data()["runs"][0]["state"] == "quiet"
    assert len(calls) == 1
    write_progress(tmp_path / "progress.json", progress(iterations=501, written=later))
    assert watched.data()["runs"][0]["iterations"] == 501
    assert len(calls) == 2


def test_an_empty_folder_waits_and_a_fit_appears_in_it(tmp_path):
    watched = WatchedFolder(tmp_path)
    assert watched.data()["runs"][0]["state"] == "waiting"
    write_progress(tmp_path / "progress.json", progress())
    time.sleep(0.8)
    assert watched.data()["runs"][0]["state"] == "running"


def test_curves_are_means_of_what_is_finite():
    assert finite_means(np.array([1.0, 3.0, np.nan, -np.inf, 5.0]), np.array([0, 2, 4])) == [2.0, None, 5.0]
    found = curves_of(trajectory(7), 100)
    assert found["iterations"] == [1, 2, 3, 4, 5, 6, 7]
    assert found["evaluations"] == [120, 140, 160, 180, 200, 220, 240]
    assert curves_of({}, 0)["elbo"] == []


# Runs and studies ---------------------------------------------------------------------------------


def write_run(path, seeds=(0, 1, 2), **entries):
    """A run with a seed that has ended, one that runs, one that failed and others that have not begun."""
    config = run_files.write_directory(path, "stm3", "SAMTRON", seeds=list(seeds), **entries)
    rows = [
        {"iterations": 10 * i, "evaluations": 100 * i, "seconds": 1.0 * i, "neg_elbo": 1.0 / i}
        for i in range(1, 6)
    ]
    for seed in seeds[:3]:
        files = SeedFiles(path, seed)
        files.folder.mkdir()
        digest = run_files.write_evaluations(files.metrics, rows)
        if seed == seeds[0]:
            run_files.write_final(files.final, config, seed, {"metrics.jsonl": digest}, neg_elbo=0.125)
        if seed == 2:
            run_files.write_failure(files.folder, HOSTILE)
    return config


def test_the_seeds_of_a_run(tmp_path):
    limits = run_files.LIMITS | {"max_evaluations": 1000}
    config = write_run(tmp_path / "run", (0, 1, 2, 7), limits=limits)
    files = SeedFiles(tmp_path / "run", 1)
    trace = {"kl": np.arange(50.0), "elbo": np.zeros(50)}
    weights = WeightHistory.from_rows([(1, np.arange(1, dtype=np.int32), np.ones(1, np.float32))])
    run_files.write_checkpoint(files, config, 1, trace, weights)
    ended, running, failed, planned = runs(tmp_path / "run")
    assert [run["name"] for run in (ended, planned)] == ["run seed 0", "run seed 7"]
    assert (ended["state"], ended["elbo"], ended["about"]) == ("ended", -0.125, "SAMTRON on stm3")
    assert (running["state"], running["evaluations"], running["elbo"]) == ("running", 500, -0.2)
    assert running["share"] == 0.5
    assert running["seconds_left"] == pytest.approx(5.0)
    assert running["curves"]["kl"] == [4.5, 14.5, 24.5, 34.5, 44.5]
    assert running["rate"] == pytest.approx(100.0)
    assert (failed["state"], failed["detail"]) == ("failed", f"failed: {HOSTILE}")
    assert (planned["state"], planned["detail"]) == ("waiting", "not started")


@pytest.mark.parametrize("name", ["config.json", "seed-0/final.json", "seed-0/metrics.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b"\xff\xfe"])
def test_damaged_files_of_a_run_leave_the_other_seeds_readable(tmp_path, name, content):
    write_run(tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    found = runs(tmp_path / "run")
    if name != "config.json":
        assert found[0]["state"] == "unreadable"
        assert name.split("/")[1] in found[0]["detail"]
        assert found[1]["state"] == "running"


def test_a_study_is_a_folder_with_runs_and_fits_below_it(tmp_path, monkeypatch):
    for i in (1, 2, 10):
        write_run(tmp_path / "trials" / f"{i}" / "run", seeds=(0,))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model": "of another program"}')
    (tmp_path / "fit").mkdir()
    write_progress(tmp_path / "fit" / "progress.json", progress())
    names = [run["name"] for run in runs(tmp_path)]
    assert names == ["fit", "trials/1/run", "trials/2/run", "trials/10/run"]
    monkeypatch.setattr(folder_module, "MOST_SHOWN", 1)
    found = WatchedFolder(tmp_path).data()
    assert [run["name"] for run in found["runs"]] == ["fit"]
    assert found["left_out"] == {"ended": 3}


def test_links_are_not_followed(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / "fit").mkdir(parents=True)
    inside.mkdir()
    write_progress(outside / "fit" / "progress.json", progress(algorithm="SECRET"))
    write_run(outside / "run", seeds=(0,))
    (inside / "folder").symlink_to(outside / "fit")
    (inside / "run").symlink_to(outside / "run")
    (inside / "file").mkdir()
    (inside / "file" / "progress.json").symlink_to(outside / "fit" / "progress.json")
    (inside / "config").mkdir()
    (inside / "config" / "config.json").symlink_to(outside / "run" / "config.json")
    shutil.copytree(outside / "run", inside / "seeds")
    shutil.rmtree(inside / "seeds" / "seed-0")
    (inside / "seeds" / "seed-0").symlink_to(outside / "run" / "seed-0")
    found = runs(inside)
    assert {run["name"]: run["state"] for run in found} == {
        "config": "unreadable",
        "file": "unreadable",
        "seeds": "unreadable",
    }
    assert all("is a link, which is not followed" in run["detail"] for run in found)
    assert "SECRET" not in json.dumps(found)


def test_an_unforeseen_error_stays_with_its_run(tmp_path, monkeypatch):
    write_progress(tmp_path / "progress.json", progress())

    def boom(*arguments):
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(folder_module, "fit_view", boom)
    found = only(tmp_path)
    assert (found["state"], found["detail"]) == ("unreadable", "RuntimeError: unforeseen")


def test_numbers_that_are_not_finite_and_hostile_names_reach_the_page_as_data():
    found = RunView(HOSTILE, elbo=float("-inf"), kl=float("nan"), notes=(HOSTILE,)).plain()
    assert (found["name"], found["elbo"], found["kl"], found["notes"]) == (HOSTILE, None, None, [HOSTILE])


def test_lengths_of_time():
    assert [ago(s) for s in (5, 99, 600, 7200, 200_000)] == ["5 s", "99 s", "10 min", "2 h", "2 days"]
