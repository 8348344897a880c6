"""`fit(checkpoint=...)`: an interrupted fit goes on as if it had not been, or is refused with a reason."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import checkpointed_fits
import jax.numpy as jnp
import numpy as np
import pytest
from checkpointed_fits import KINDS, assert_same, fitted, sample_store

import natmix
from natmix.engine import checkpoint_schedule, fit_checkpoint
from natmix.files.generations import previous
from natmix.files.lock import lock
from natmix.files.versions import versions
from natmix.targets import TargetError

pytestmark = pytest.mark.usefixtures("quick_compilation")

OFTEN = ("JAX", "minibatches")
"""The kinds that are tried by default; the others take long."""
QUICK: dict[str, Any] = {"algorithm": "samtron", "max_iterations": 60, "verify": False, "progress": False}


def normal(x):
    return -0.5 * jnp.sum((x - 1) ** 2)


@pytest.fixture(autouse=True)
def every_chunk(monkeypatch):
    monkeypatch.setattr(checkpoint_schedule, "COST_SHARE", 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Of each kind: a fit that was not interrupted, and its folder."""
    made = {}

    def get(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = fitted(kind, folder), folder
        return made[kind]

    return get


def stop_at(iteration):
    return lambda snapshot: snapshot.iteration >= iteration


def quick(folder, **arguments):
    return natmix.fit(normal, 2, **{**QUICK, "checkpoint": folder, "checkpoint_seconds": 0.0, **arguments})


HOST: dict[str, Any] = {"dim": 2, "max_evaluations": 1500, "verify": False, "progress": False}
"""Of fits to a function that JAX cannot trace."""


@pytest.fixture(scope="module")
def host_fit(tmp_path_factory):
    """Of the options `HOST`, not interrupted."""
    return natmix.fit(checkpointed_fits.on_host, checkpoint=tmp_path_factory.mktemp("host"), **HOST)


# Going on ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [k if k in OFTEN else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_an_interrupted_fit_ends_with_the_same_numbers(kind, whole, tmp_path):
    expected, folder = whole(kind)
    n = expected.counts.iterations
    for end in (1, n // 2 + 7):
        assert fitted(kind, tmp_path, callback=stop_at(end)).stopped == "callback"
    assert_same(fitted(kind, tmp_path), expected)
    here, there = sample_store(tmp_path), sample_store(folder)
    assert here.keys() == there.keys()
    assert all(here[name].tobytes() == there[name].tobytes() for name in here)


def test_a_fit_with_more_samples_on_the_way_goes_on_from_every_level(tmp_path):
    """From few samples to many: the state has other shapes afterwards."""
    levels = [{"sample_selector": {"desired_samples": n}} for n in (30, 60)]
    options: dict[str, Any] = {
        "more_samples": levels,
        "accuracy": 0.0,
        "max_iterations": 240,
        "sample_selector": {"desired_samples": 15, "reuse_ratio": 2.0},
    }
    expected = quick(tmp_path / "whole", **options)
    samples = expected.trajectory["evaluations"]
    assert samples[-1] > samples[0], "the fit never took more samples"
    for end in range(20, 240, 60):
        quick(tmp_path / "parts", callback=stop_at(end), **options)
    assert_same(quick(tmp_path / "parts", **options), expected)


def test_a_finished_fit_is_only_read(tmp_path):
    calls = []

    def target(x):
        calls.append(np.atleast_2d(x).shape[0])
        return checkpointed_fits.on_host(x)

    options: dict[str, Any] = {"dim": 2, "max_evaluations": 1500, "progress": False, "checkpoint": tmp_path}
    expected = natmix.fit(target, **options)
    before = sum(calls)
    again = natmix.fit(target, **options)
    assert_same(again, expected)
    assert sum(calls) - before <= 5  # to see what kind of function it is, and one to recognise it
    assert again.target is not None


def test_evaluations_of_a_resumed_fit_are_counted_once(tmp_path):
    calls = []

    def target(x):
        calls.append(np.atleast_2d(x).shape[0])
        return checkpointed_fits.on_host(x)

    options: dict[str, Any] = {
        "dim": 2,
        "max_evaluations": 1500,
        "progress": False,
        "checkpoint_seconds": 0.0,
    }
    expected = natmix.fit(target, checkpoint=tmp_path / "a", **options)
    assert expected.counts.evaluations == sum(calls) <= 1500
    natmix.fit(target, checkpoint=tmp_path / "b", callback=stop_at(10), **options)
    assert_same(natmix.fit(target, checkpoint=tmp_path / "b", **options), expected)


def test_an_interrupt_saves_a_checkpoint(tmp_path):
    """Although none was due."""
    expected = quick(tmp_path / "whole")
    part = quick(
        tmp_path / "part",
        checkpoint_seconds=1e6,
        callback=lambda s: os.kill(os.getpid(), signal.SIGTERM) if s.iteration >= 20 else None,
    )
    assert part.stopped == "interrupted"
    assert part.counts.iterations < 60
    assert_same(quick(tmp_path / "part"), expected)


def test_an_interrupt_in_the_users_function_loses_no_iteration(tmp_path, host_fit):
    """The call that was broken off is made again, and counted once."""
    calls = []

    def target(x):
        calls.append(1)
        if len(calls) == 30:
            signal.raise_signal(signal.SIGINT)
        return checkpointed_fits.on_host(x)

    part = natmix.fit(target, checkpoint=tmp_path, checkpoint_seconds=1e6, **HOST)
    assert part.stopped == "interrupted"
    assert part.counts.iterations > 5
    assert_same(natmix.fit(target, checkpoint=tmp_path, **HOST), host_fit)


def test_an_error_of_the_target_can_be_mended(tmp_path, host_fit):
    broken = threading.Event()

    def target(x):
        if broken.is_set():
            raise ZeroDivisionError("a simulator that fails")
        return checkpointed_fits.on_host(x)

    options: dict[str, Any] = HOST | {"checkpoint": tmp_path, "checkpoint_seconds": 0.0}

    def fail(snapshot):
        if snapshot.iteration == 12:
            broken.set()

    with pytest.raises(TargetError, match="a simulator that fails"):
        natmix.fit(target, callback=fail, **options)
    broken.clear()
    assert_same(natmix.fit(target, **options), host_fit)


def test_resume_false_begins_anew(tmp_path):
    quick(tmp_path, seed=1)
    assert_same(quick(tmp_path, resume=False), quick(tmp_path / "other"))
    assert_same(quick(tmp_path), quick(tmp_path / "other"))


def test_anyway_goes_on_with_another_limit(tmp_path):
    first = quick(tmp_path, max_iterations=40, accuracy=0.0)
    more = quick(tmp_path, max_iterations=80, accuracy=0.0, resume="anyway")
    assert (first.counts.iterations, more.counts.iterations) == (40, 80)
    assert more.trajectory["elbo"][:40].tobytes() == first.trajectory["elbo"].tobytes()
    assert_same(more, quick(tmp_path / "whole", max_iterations=80, accuracy=0.0))


# Refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "of a fit with seed 0, not 1; give another folder"),
        ({"algorithm": "semyrux"}, r"algorithm\.\w+"),
        ({"max_iterations": 50}, "max_iterations 60, not 50"),
        ({"init_scale": 2.0}, "init_scale 1.0, not 2.0"),
        ({"init_mixture": natmix.Mixture.full([1.0], np.ones((1, 2)), np.eye(2)[None])}, "init_mixture None"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, changes, message):
    quick(tmp_path, callback=stop_at(20))
    before = (tmp_path / "state.safetensors").read_bytes()
    with pytest.raises(ValueError, match=message):
        quick(tmp_path, **changes)
    assert (tmp_path / "state.safetensors").read_bytes() == before


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    def target(x, data):
        return -0.5 * jnp.sum((x - data.mean(axis=0)) ** 2)

    data = np.random.default_rng(0).normal(size=(50, 2))
    options: dict[str, Any] = {**QUICK, "checkpoint": tmp_path, "checkpoint_seconds": 0.0}
    natmix.fit(target, 2, data=data, callback=stop_at(20), **options)
    data[3, 1] += 0.1
    with pytest.raises(ValueError, match="of another target, or of other data: log densities are"):
        natmix.fit(target, 2, data=data, **options)
    natmix.fit(target, 2, data=data, resume="anyway", **options)


def test_a_checkpoint_of_other_software_is_refused(tmp_path, monkeypatch):
    quick(tmp_path, callback=stop_at(20))
    known = versions()
    monkeypatch.setattr(fit_checkpoint, "versions", lambda: known | {"jax": "0.0.1"})
    with pytest.raises(ValueError, match=r"made with jax '\d.*', not '0.0.1'; give another folder"):
        quick(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"resume": "always"}, ValueError, "resume must be True, False or 'anyway'"),
        ({"checkpoint_seconds": -1}, ValueError, "checkpoint_seconds must be a number, not negative"),
        ({"checkpoint": "nowhere/at/all"}, FileNotFoundError, "does not exist; create it"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_done(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        quick(tmp_path, **arguments)


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(NotADirectoryError, match="is a file; name a folder"):
        quick(path)


def test_two_fits_cannot_share_a_folder(tmp_path):
    with lock(tmp_path / ".lock", wait=False) as free:
        assert free
        with pytest.raises(ValueError, match="Another fit is writing its checkpoints to"):
            quick(tmp_path)


# Damage -----------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, caplog):
    expected = quick(tmp_path / "whole")
    folder = tmp_path / "part"
    for end in (20, 40):
        quick(folder, callback=stop_at(end))
    content = bytearray((folder / "state.safetensors").read_bytes())
    content[len(content) // 2] ^= 4
    (folder / "state.safetensors").write_bytes(content)
    assert_same(quick(folder), expected)
    assert "goes on from the checkpoint before the last, after" in caplog.text
    assert (folder / "state.damaged.safetensors").is_file()


def test_a_checkpoint_without_a_whole_generation_is_an_error(tmp_path):
    quick(tmp_path, callback=stop_at(40))
    for path in (tmp_path / "state.safetensors", previous(tmp_path / "state.safetensors")):
        path.write_bytes(path.read_bytes()[:-7] if path.is_file() else b"")
    with pytest.raises(ValueError, match="To begin the fit anew, remove"):
        quick(tmp_path)


def test_a_full_disk_is_one_warning(tmp_path, monkeypatch, caplog):
    expected = quick(tmp_path / "whole")

    def full(*arguments, **others):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("natmix.files.durable.write_new", full)
        assert_same(quick(tmp_path / "part"), expected)
    assert caplog.text.count("goes on in memory") == 1
    assert_same(quick(tmp_path / "part"), expected)


def test_a_folder_that_vanishes_is_made_again(tmp_path):
    folder = tmp_path / "part"
    gone: list[None] = []

    def remove(snapshot):
        if not gone:
            gone.extend(path.unlink() for path in folder.iterdir())
            folder.rmdir()

    expected = quick(tmp_path / "whole")
    assert_same(quick(folder, callback=remove), expected)
    assert (folder / "result.safetensors").is_file()


# Kills ------------------------------------------------------------------------------------------


def killed(kind: str, folder: Path, seconds: float) -> bool:
    """Start a fit and kill it some seconds after its first chunk; whether it had ended before."""
    program = [sys.executable, checkpointed_fits.__file__, kind, str(folder)]
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder.with_name("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        output = first + process.stdout.read()
        timer.cancel()
    assert process.returncode in (0, -signal.SIGKILL), output
    return "done" in output


def killed_often(kind: str, folder: Path, kills: int, longest: float, seed: int) -> int:
    """Kill a fit until it ends; returns how often that succeeded."""
    times = random.Random(seed)
    done = 0
    for _ in range(kills):
        if killed(kind, folder, times.uniform(0, longest)):
            return done
        done += 1
    assert killed(kind, folder, 600)
    return done


def assert_kills_change_nothing(kind: str, folder: Path, kills: int, longest: float, seed: int) -> None:
    """Both fits in processes of their own: here the compiler has other settings."""
    assert killed(kind, folder / "whole", 600)
    done = killed_often(kind, folder / "killed", kills, longest, seed)
    assert done, "the fit ended before it was killed"
    print(f"{kind}, seed {seed}: killed {done} times")
    results = [natmix.Result.load(folder / name / "result.safetensors") for name in ("whole", "killed")]
    assert_same(*results)
    here, there = (sample_store(folder / name) for name in ("whole", "killed"))
    assert here.keys() == there.keys()
    assert all(here[name].tobytes() == there[name].tobytes() for name in here)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_killed_fit_goes_on(tmp_path):
    assert_kills_change_nothing("JAX", tmp_path, 1, 0.3, seed=0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_eighty_kills_change_nothing(kind, seed, tmp_path):
    """Ten of each kind, at random moments; the first two kinds take a fraction of a second."""
    longest = 0.05 if kind in ("JAX", "NumPyro", "PyMC") else 0.5
    assert_kills_change_nothing(kind, tmp_path, 5, longest, seed)
