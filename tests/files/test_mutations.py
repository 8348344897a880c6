"""Damaged files: an error that names the file, or the true content, and nothing else."""

import tracemalloc
import zlib

import jax
import pytest
from every_file import EveryFile, every_file, same
from mutations import MUTATIONS, mutated

jax.config.update("jax_enable_x64", True)

KINDS = (
    "mixture",
    "diagonal mixture",
    "result",
    "checkpoint",
    "fit checkpoint",
    "progress of a fit",
    "command of a fit",
    "trace",
    "weights",
    "evaluations",
    "final numbers",
    "failure",
    "environment",
    "study",
    "planned batch",
    "outcome",
    "configuration",
)
NAME = "config.json"
"""Of the damaged file: the one that a configuration must have."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return every_file(tmp_path_factory.mktemp("files"))


def refusal(file: EveryFile, path):
    """The message with which a file is refused; None and what was read if it is not."""
    try:
        return None, file.read(path)
    except ValueError as error:
        return str(error), None


def run(kind, files, tmp_path, count):
    """How many damaged contents were refused, and how many read; sealed ones only if nothing was changed."""
    file, path, refused = files[kind], tmp_path / NAME, 0
    path.write_bytes(file.content)
    truth = file.read(path)
    # One mixture in the place of another is no damage that a file alone can show.
    others = [other.content for name, other in files.items() if kind.split()[-1] not in name]
    for name, content in mutated(zlib.crc32(kind.encode()), file.content, others, count):
        path.write_bytes(content)
        message, found = refusal(file, path)
        if message is not None:
            assert str(path.parent) in message, f"{name}: {message}"
            assert len(message.splitlines()) == 1, f"{name}: {message}"
            refused += 1
        elif file.sealed:
            assert content == file.content, f"{name} was accepted"
            assert same(found, truth)
        else:
            assert same_types(found, truth), f"{name} was accepted"
    return refused, count - refused


def same_types(a, b):
    """Whether plain data have the same names and types throughout; lists may have other lengths."""
    if isinstance(b, dict):
        return isinstance(a, dict) and a.keys() == b.keys() and all(same_types(a[k], b[k]) for k in b)
    if isinstance(b, list):
        return isinstance(a, list) and all(same_types(x, b[0]) for x in a)
    number = (int, float, type(None))
    return isinstance(a, number) if isinstance(b, number) else type(a) is type(b)


def test_all_kinds_are_here(files):
    assert tuple(files) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found(kind, files, tmp_path):
    refused, _ = run(kind, files, tmp_path, 3 * len(MUTATIONS))
    if kind != "configuration":
        assert refused > 2.5 * len(MUTATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found_ten_thousand_times(kind, files, tmp_path, record_property):
    refused, kept = run(kind, files, tmp_path, 10_000)
    record_property("refused", refused)
    record_property("unchanged", kept)
    print(
        f"\n{kind}: {refused} refused, {kept} read (mutations that changed nothing, or a valid configuration)"
    )


@pytest.mark.parametrize("kind", ["mixture", "result", "checkpoint", "fit checkpoint"])
def test_a_header_that_claims_exabytes_costs_no_memory(kind, files, tmp_path):
    file = files[kind]
    path = tmp_path / NAME
    tracemalloc.start()
    try:
        for name, content in mutated(0, file.content, [b"x"], 4 * len(MUTATIONS)):
            if name not in ("huge_shape", "header_length", "changed_number") or content == file.content:
                continue
            path.write_bytes(content)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with pytest.raises(ValueError, match=NAME):
                file.read(path)
            assert tracemalloc.get_traced_memory()[1] - before < 8 * len(file.content) + 200_000
    finally:
        tracemalloc.stop()
