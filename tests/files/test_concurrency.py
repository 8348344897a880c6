"""Many writers of one path, full disks, and what is on the disk."""

import errno
import os
import pickle
import resource
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

from natmix import Mixture
from natmix.files.durable import CannotWriteError, remove_leftovers, write_file
from natmix.files.generations import previous

jax.config.update("jax_enable_x64", True)

SAVES = 25


def mixture(seed: int) -> Mixture:
    means = np.random.default_rng(seed).normal(size=(2, 3))
    return Mixture.diagonal([1, 1], means, np.ones((2, 3)))


def first_means(seeds: range) -> set[float]:
    return {float(mixture(seed).means[0, 0]) for seed in seeds}


def test_four_threads_save_to_one_path(tmp_path: Path) -> None:
    path, errors = tmp_path / "q", []
    mixtures = [mixture(seed) for seed in range(4)]
    mixtures[0].save(path)

    def save(q: Mixture) -> None:
        try:
            for _ in range(SAVES):
                q.save(path)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(q,)) for q in mixtures]
    for thread in threads:
        thread.start()
    known = first_means(range(4))
    while any(thread.is_alive() for thread in threads):
        assert float(Mixture.load(path).means[0, 0]) in known
    assert not errors
    assert float(Mixture.load(path).means[0, 0]) in known
    assert [p.name for p in tmp_path.iterdir()] == ["q"]


SAVING = """
import sys
from pathlib import Path
import numpy as np
from natmix.files.arrays import write_arrays
from natmix.files.seal import TRACE
path, number = Path(sys.argv[1]), int(sys.argv[2])
for i in range(50):
    write_arrays(path, TRACE, {"x": np.full(1000 + number, float(number))}, {})
"""


def test_four_processes_save_to_one_path(tmp_path: Path) -> None:
    from natmix.experiments.runs.history import read_trace

    path = tmp_path / "trace"
    processes = [subprocess.Popen([sys.executable, "-c", SAVING, path, str(n)]) for n in range(4)]
    while any(process.poll() is None for process in processes):
        if path.exists():
            (x,) = read_trace(path)[0].values()
            assert len(x) == 1000 + x[0]
    assert [process.returncode for process in processes] == [0] * 4
    assert len(read_trace(path)[0]["x"]) in range(1000, 1004)
    assert [p.name for p in tmp_path.iterdir()] == ["trace"]


@pytest.fixture
def small_files():
    """No file may be larger than 4 KiB: the system refuses to write more, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, small_files: None) -> None:
    path = tmp_path / "q"
    write_file(path, b"before")
    with pytest.raises(
        CannotWriteError, match=r"q cannot be written .* what was there before is unch"
    ) as caught:
        write_file(path, bytes(4000), bytes(4000))
    assert caught.value.errno == errno.EFBIG
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["q"]


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    for name in ("fsync", "replace"):
        plain = getattr(os, name)

        def noted(*args, name=name, plain=plain, **kwargs):
            where = os.readlink(f"/proc/self/fd/{args[0]}") if name == "fsync" else args[1]
            done.append((name, Path(where).name.partition(".writing-")[0]))
            return plain(*args, **kwargs)

        monkeypatch.setattr(os, name, noted)
    write_file(tmp_path / "q", b"text")
    assert done == [("fsync", ".q"), ("replace", "q"), ("fsync", tmp_path.name)]


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from natmix.files.durable import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "q"], check=False)
    (tmp_path / "other").touch()
    assert len(list(tmp_path.iterdir())) == 2
    remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["other"]


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    write_file(tmp_path / "q", b"text")
    (tmp_path / "plain").touch()
    assert (tmp_path / "q").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("links", [True, False])
def test_the_generation_before_is_kept(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file can have two names there is a newest generation at every moment."""
    path, seen = tmp_path / "q", []
    if not links:

        def link(*names: object) -> None:
            raise PermissionError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", link)
    replace = os.replace

    def watched(*names: str | Path) -> None:
        seen.append(path.exists())
        replace(*names)
        seen.append(path.exists())

    write_file(path, b"0", keep=previous(path))
    monkeypatch.setattr(os, "replace", watched)
    for number in (b"1", b"2", b"3"):
        write_file(path, number, keep=previous(path))
        assert path.read_bytes() == number
        assert int(previous(path).read_bytes()) == int(number) - 1
    assert all(seen) == links
    assert sorted(p.name for p in tmp_path.iterdir()) == ["q", "q.previous"]
