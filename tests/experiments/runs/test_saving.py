"""A full disk or a directory that is gone is one warning; the run goes on in memory."""

import errno
import json
import logging
import shutil
import subprocess

import numpy as np
import pytest
from small_runs import EventWatcher, execute
from tiny_problem import tiny

from natmix.experiments.runs import Limits, load_run
from natmix.files import durable
from natmix.files.generations import previous

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return execute(tmp_path_factory.mktemp("runs") / "undisturbed").run.seeds[0]


@pytest.fixture
def often(monkeypatch):
    """A checkpoint after every chunk of few iterations."""
    monkeypatch.setattr("natmix.engine.single_run.CHUNK_SECONDS", 0.0)
    monkeypatch.setattr("natmix.engine.checkpoint_schedule.COST_SHARE", 0)
    monkeypatch.setattr("natmix.engine.checkpoint_schedule.FIRST_CHECKPOINT_SECONDS", 0.0)


class Disk:
    """Writes are refused while it is full."""

    def __init__(self, monkeypatch):
        self.full = False
        write = durable.write_new

        def write_new(path, parts):
            if self.full:
                path.write_bytes(b"half")
                raise OSError(errno.ENOSPC, "No space left on device")
            write(path, parts)

        monkeypatch.setattr(durable, "write_new", write_new)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def warnings(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def assert_same(seed, undisturbed):
    for name in ("neg_elbo", "iterations", "evaluations", "components", "first_mean"):
        assert seed.final[name] == undisturbed.final[name], name
    for name in undisturbed.trace.keys() - {"seconds"}:
        np.testing.assert_array_equal(seed.trace[name], undisturbed.trace[name], err_msg=name)
    np.testing.assert_array_equal(seed.mixture.means, undisturbed.mixture.means)


def test_a_disk_that_is_full_for_a_while_is_one_warning(undisturbed, disk, often, tmp_path, caplog):
    def fill(snapshot):
        disk.full = 10 < snapshot.iterations < 40

    out = tmp_path / "run"
    outcome = execute(out, watcher=EventWatcher(fill), checkpoint_seconds=0.0)
    assert_same(outcome.run.seeds[0], undisturbed)
    first, second = warnings(caplog)
    assert "goes on in memory" in first
    assert "No space left" in first
    assert second.endswith("can be written to again.")
    assert not [p for p in out.rglob("*") if ".writing-" in p.name]


def test_a_disk_that_stays_full_ends_in_one_sentence_and_the_run_goes_on_later(
    undisturbed, disk, often, tmp_path, caplog
):
    def fill(snapshot):
        disk.full = snapshot.iterations > 30

    out = tmp_path / "run"
    with pytest.raises(OSError, match=r"could not be saved \(seed 0\): .*No space left.*Make room and"):
        execute(out, watcher=EventWatcher(fill), checkpoint_seconds=0.0)
    assert len(warnings(caplog)) == 1
    disk.full = False
    watcher = EventWatcher()
    again = execute(out, watcher=watcher)
    assert watcher.events[0][0] == "began"
    assert watcher.events[0][2] >= 10  # from the last checkpoint
    assert_same(again.run.seeds[0], undisturbed)


def test_a_directory_that_vanishes_is_made_again(undisturbed, often, tmp_path, caplog):
    out = tmp_path / "run"
    removed: list[int] = []

    def remove(snapshot):
        if snapshot.iterations > 20 and not removed:
            removed.append(snapshot.iterations)
            shutil.rmtree(out)

    outcome = execute(out, watcher=EventWatcher(remove), checkpoint_seconds=0.0, keep_checkpoints=True)
    assert removed
    assert_same(outcome.run.seeds[0], undisturbed)
    assert outcome.run.environment
    assert warnings(caplog) == [f"{out} was gone and has been made again."]


def test_a_folder_above_that_vanishes_is_waited_for(undisturbed, often, tmp_path, caplog):
    """As a network drive that is not there for a while."""
    drive, away = tmp_path / "drive", tmp_path / "away"
    drive.mkdir()

    def unplug(snapshot):
        if 15 < snapshot.iterations < 30 and drive.exists():
            drive.rename(away)
        if snapshot.iterations >= 30 and away.exists():
            away.rename(drive)

    outcome = execute(drive / "run", watcher=EventWatcher(unplug), checkpoint_seconds=0.0)
    assert_same(outcome.run.seeds[0], undisturbed)
    assert len(warnings(caplog)) == 2


def killed_run(out, often):
    """A run that leaves two generations of checkpoints; after how many iterations each was written."""

    class Killed(BaseException):
        pass

    seen = []

    def kill(snapshot):
        seen.append(snapshot.iterations)
        if len(seen) == 4:
            raise Killed

    with pytest.raises(Killed):
        execute(out, watcher=EventWatcher(kill), checkpoint_seconds=0.0)
    return seen[-2:]


def test_a_damaged_checkpoint_falls_back_says_so_and_ends_alike(undisturbed, often, tmp_path, caplog):
    out = tmp_path / "run"
    before, _ = killed_run(out, often)
    path = out / "seed-0" / "checkpoint" / "state.safetensors"
    content = bytearray(path.read_bytes())
    for place in (-5000, -700, -70):
        content[place] ^= 1
    path.write_bytes(content)
    watcher = EventWatcher()
    outcome = execute(out, watcher=watcher)
    assert watcher.events[0] == ("began", 0, before)
    (message,) = warnings(caplog)
    assert "goes on from the checkpoint before the last" in message
    assert "state.safetensors is damaged: its checksum" in message
    assert_same(outcome.run.seeds[0], undisturbed)


def test_two_damaged_checkpoints_are_refused_with_advice(often, tmp_path):
    out = tmp_path / "run"
    killed_run(out, often)
    path = out / "seed-0" / "checkpoint" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    previous(path).write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"state\.safetensors is damaged.*begin seed 0 anew, remove its folder"
    ):
        execute(out)


@pytest.mark.parametrize("damage", ["missing", "shortened"])
def test_other_files_of_the_folder_do_not_matter_for_going_on(damage, undisturbed, often, tmp_path, caplog):
    out = tmp_path / "run"
    killed_run(out, often)
    path = out / "seed-0" / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.unlink() if damage == "missing" else path.write_text("\n".join(lines[:1]))
    outcome = execute(out)
    seed = outcome.run.seeds[0]
    assert_same(seed, undisturbed)
    assert len(seed.trace["elbo"]) == seed.final["iterations"] == 60
    assert seed.metrics["iterations"][-1] == 60
    assert not warnings(caplog)


def test_the_files_of_another_seed_are_refused(tmp_path):
    out = tmp_path / "run"
    execute(out, (0, 1), limits=Limits(max_iterations=5), keep_checkpoints=True)
    names = ("trace.safetensors", "mixture.safetensors", "metrics.jsonl")
    for name in names:
        shutil.copy(out / "seed-1" / name, out / "seed-0" / name)
    seed = load_run(out).seeds[0]
    for part in ("trace", "mixture", "metrics"):
        with pytest.raises(ValueError, match=r"is damaged: the seed's final numbers belong to another file"):
            getattr(seed, part)
    shutil.copy(out / "seed-1" / "final.json", out / "seed-0" / "final.json")
    with pytest.raises(ValueError, match="belongs to seed 1, not to seed 0"):
        execute(out, (0,))
    shutil.rmtree(out / "seed-0")
    shutil.copytree(out / "seed-1", out / "seed-0")
    (out / "seed-0" / "final.json").unlink()
    with pytest.raises(ValueError, match="is of seed 1, not 0; remove the seed's folder"):
        execute(out, (0,))


def test_a_configuration_that_was_edited_wrongly_is_named(tmp_path):
    out = tmp_path / "run"
    execute(out, limits=Limits(max_iterations=1))
    path = out / "config.json"
    config = json.loads(path.read_text())
    limits = config["limits"]
    for change, words in (
        ({"dtyp": "float32"}, "dtyp is not known"),
        ({"limits": limits | {"max_seconds": "600"}}, "limits.max_seconds must be a number or null"),
        ({"limits": limits | {"max_seconds": -1.0}}, "max_seconds must be a positive number"),
        ({"seeds": [0, "1"]}, r"seeds\[1\] must be a whole number, not '1'"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64'"),
        ({"covariance": "round"}, "covariance must be full or diagonal"),
        ({"problem": {"name": "tiny"}}, "there is no problem.options"),
    ):
        path.write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=rf"config\.json is damaged or was edited wrongly: {words}"):
            load_run(out)


@pytest.fixture
def tmpfs(tmp_path):
    """A disk of its own, of 400 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", place], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("may not mount a file system")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_really_full(undisturbed, often, tmpfs, caplog):
    ballast = tmpfs / "ballast"

    def fill_up():
        with ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def fill(snapshot):
        if snapshot.iterations > 10 and not ballast.exists():
            with pytest.raises(OSError, match="No space left"):
                fill_up()
        if snapshot.iterations > 40 and ballast.exists() and ballast.stat().st_size:
            ballast.write_bytes(b"")

    outcome = execute(tmpfs / "run", watcher=EventWatcher(fill), checkpoint_seconds=0.0, load=tiny)
    assert_same(outcome.run.seeds[0], undisturbed)
    assert "No space left on device" in warnings(caplog)[0]
    assert len(warnings(caplog)) == 2
