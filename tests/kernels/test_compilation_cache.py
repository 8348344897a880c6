"""Compiled programs are kept on disk."""

import os
import subprocess
import sys

import jax
import pytest

from natmix.kernels import compilation_cache
from natmix.kernels.compilation_cache import VARIABLE, drop_oldest, use_compilation_cache


def demo(folder, **variables):
    environment = {k: v for k, v in os.environ.items() if k != VARIABLE} | variables
    arguments = ["demo", "--out", str(folder / "demo"), "--codename", "semtron", "--max-iterations", "3"]
    code = "from natmix.cli import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_a_command_leaves_its_programs_in_the_cache_directory(tmp_path):
    demo(tmp_path, NATMIX_CACHE=str(tmp_path / "cache"))
    assert any("chunk" in f.name for f in (tmp_path / "cache" / "compiled").rglob("*"))


@pytest.fixture
def no_cache(monkeypatch):
    monkeypatch.delenv(VARIABLE)
    name = "jax_compilation_cache_dir"
    before = getattr(jax.config, name)
    jax.config.update(name, None)
    yield
    jax.config.update(name, before)


def test_a_place_the_user_has_chosen_is_kept(tmp_path, monkeypatch, no_cache):
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path / "ours"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")  # type: ignore[attr-defined]
    assert not (tmp_path / "ours").exists()


def test_a_directory_that_cannot_be_made_is_no_reason_to_stop(tmp_path, monkeypatch, no_cache):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path / "file"))
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None  # type: ignore[attr-defined]


def test_programs_used_least_recently_are_dropped_by_size(tmp_path):
    for i in range(5):
        file = tmp_path / "kind" / f"{i}-cache"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * 100)
        os.utime(file, (i, i))
    drop_oldest(tmp_path, 500)
    assert len(list((tmp_path / "kind").iterdir())) == 5
    drop_oldest(tmp_path, 400)
    assert sorted(f.name for f in (tmp_path / "kind").iterdir()) == ["2-cache", "3-cache", "4-cache"]


def test_it_can_be_turned_off_and_on(tmp_path, monkeypatch, no_cache):
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path))
    monkeypatch.setenv("NATMIX_COMPILATION_CACHE", "0")
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None  # type: ignore[attr-defined]
    monkeypatch.setattr(compilation_cache, "_wanted", None)
    compilation_cache.compilation_cache(True)
    folder = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    assert str(folder).startswith(str(tmp_path / "compiled"))
    compilation_cache.compilation_cache(False)
    assert jax.config.jax_compilation_cache_dir is None  # type: ignore[attr-defined]
    monkeypatch.setenv("NATMIX_COMPILATION_CACHE", "no")
    monkeypatch.setattr(compilation_cache, "_wanted", None)
    with pytest.raises(ValueError, match="must be 0 or 1, got 'no'"):
        use_compilation_cache()
