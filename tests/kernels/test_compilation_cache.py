"""Commands keep compiled programs on disk."""

import os
import subprocess
import sys

import jax
import pytest

from natmix.kernels.compilation_cache import use_compilation_cache


def demo(folder, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | variables
    arguments = ["demo", "--out", str(folder / "demo"), "--codename", "semtron", "--max-iterations", "3"]
    code = "from natmix.cli import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_a_command_leaves_its_programs_in_the_cache_directory(tmp_path):
    demo(tmp_path, NATMIX_CACHE=str(tmp_path / "cache"))
    assert any("chunk" in f.name for f in (tmp_path / "cache" / "compiled").iterdir())


@pytest.fixture
def no_cache():
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
