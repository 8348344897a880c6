"""Compiled Stan programs are loaded only if natmix has built them for this user."""

import os
from pathlib import Path

import pytest

from natmix.models.stan_backends import cache, httpstan
from natmix.models.stan_backends.program import Program

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and permissions of POSIX")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """How often the compiler has run: it writes a library that is none."""
    log, compiler = tmp_path / "log", tmp_path / "compiler"
    compiler.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\n'
        f"echo library > $out; echo ran >> {log}\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    return lambda: log.read_text().count("ran") if log.exists() else 0


def library(tmp_path: Path) -> Path:
    stan, program = tmp_path / "httpstan", Program("the program")
    return httpstan._Kept(stan, program, tmp_path, "key", "the model in C++").library()[0]


def test_a_library_is_compiled_once(tmp_path: Path, compiled) -> None:
    path = library(tmp_path)
    assert library(tmp_path) == path
    assert compiled() == 1
    assert path.read_text() == "library\n"
    for private in (path, path.parent, path.parent.parent):
        assert private.stat().st_mode & 0o077 == 0


def replaced(path: Path) -> None:
    path.unlink()
    path.write_text("another library\n")


def linked(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    path.replace(elsewhere)
    path.symlink_to(elsewhere)


CHANGES = {
    "other content": lambda path: path.write_text("librarx\n"),
    "replaced": replaced,
    "empty": lambda path: path.write_text(""),
    "no checksum": lambda path: path.with_name("model.so.sha256").unlink(),
    "other checksum": lambda path: path.with_name("model.so.sha256").write_text("0" * 64),
    "others may write": lambda path: path.chmod(0o722),
    "others may change the checksum": lambda path: path.with_name("model.so.sha256").chmod(0o666),
    "a link": linked,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_library_that_natmix_did_not_build_is_compiled_again(change: str, tmp_path: Path, compiled) -> None:
    path = library(tmp_path)
    CHANGES[change](path)
    assert not cache.is_own(path)
    assert library(tmp_path) == path
    assert compiled() == 2
    assert cache.is_own(path)
    assert path.read_text() == "library\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["library", "folder", "folder above"])
def test_a_library_of_another_user_is_not_loaded(what: str, tmp_path: Path, compiled) -> None:
    path = library(tmp_path)
    given = {"library": path, "folder": path.parent, "folder above": path.parent.parent}[what]
    os.chown(given, 12345, 12345)
    if what == "library":
        assert library(tmp_path) == path
    else:
        with pytest.warns(UserWarning, match="Others may write to .* let NATMIX_CACHE name"):
            assert library(tmp_path).parent != path.parent
    assert compiled() == 2


def test_an_open_folder_of_an_earlier_version_is_closed(tmp_path: Path, compiled, base: Path) -> None:
    (base / "stan").mkdir(parents=True, mode=0o777)
    (base / "stan").chmod(0o777)
    assert cache.is_own(library(tmp_path))
    assert (base / "stan").stat().st_mode & 0o777 == 0o700


def test_foreign_libraries_beside_a_cached_program_are_removed() -> None:
    path = cache.cached_file(b"model {}", "program.stan", "threads")
    mine, foreign = path.with_name("program_model.so"), path.with_name("other.so")
    mine.write_bytes(b"mine")
    cache.record(mine)
    foreign.write_bytes(b"foreign")
    path.write_bytes(b"model { changed }")
    again = cache.cached_file(b"model {}", "program.stan", "threads")
    assert again == path
    assert path.read_bytes() == b"model {}"
    assert mine.exists()
    assert not foreign.exists()
