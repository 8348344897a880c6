"""The journal of a target: a point is evaluated once, and damage is never taken for a value."""

import errno
import logging
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from typing import Any

import numpy as np
import pytest
from mutations import MUTATIONS, mutated

import natmix
from natmix import HostTarget
from natmix.targets.journal import Journal

FEW: dict[str, Any] = {
    "sample_selector": {"desired_samples": 20},
    "component_adaptation": {"add_iters": 3, "prior_candidates": 7},
    "elbo_samples": 20,
    "verify": False,
    "progress": False,
}


class Counted:
    def __init__(self, most=10**9):
        self.calls, self.most = 0, most

    def __call__(self, x):
        self.calls += 1
        if self.calls > self.most:
            raise KeyboardInterrupt
        return -0.5 * float(x @ x) - 0.1 * float(np.sum(x**4)), -x - 0.4 * x**3


def target(fn, journal=None, **kind):
    return HostTarget(fn, 2, returns_gradient=True, journal=journal, **kind)


@pytest.mark.usefixtures("quick_compilation")
def test_a_second_fit_evaluates_nothing_and_is_the_same(tmp_path):
    plain, first, second = Counted(), Counted(), Counted()
    without = natmix.fit(target(plain), max_iterations=4, **FEW)
    written = natmix.fit(target(first, tmp_path / "journal"), max_iterations=4, **FEW)
    again = natmix.fit(target(second, str(tmp_path / "journal")), max_iterations=4, **FEW)
    assert plain.calls == first.calls == without.counts.evaluations == again.counts.evaluations
    assert second.calls == 0
    assert any(f"{first.calls:,} evaluations were taken from the journal" in note for note in again.notes)
    assert not any("journal" in note for note in written.notes)
    for fit in (written, again):
        np.testing.assert_array_equal(fit.mixture.means, without.mixture.means)
        np.testing.assert_array_equal(fit.trajectory["elbo"], without.trajectory["elbo"])
        assert fit.elbo.value == without.elbo.value


@pytest.mark.usefixtures("quick_compilation")
def test_an_interrupted_fit_goes_on_where_it_was(tmp_path):
    broken, rest, whole = Counted(most=50), Counted(), Counted()
    with pytest.raises(KeyboardInterrupt):
        target(broken, tmp_path).call(np.random.default_rng(0).normal(size=(70, 2)), True)
    points = np.random.default_rng(0).normal(size=(70, 2))
    values, gradients = target(rest, tmp_path).call(points, True)
    assert rest.calls == 20
    expected = target(whole).call(points, True)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(gradients, expected[1])


def test_a_killed_process_leaves_what_it_had(tmp_path):
    code = """
    import os, signal, sys
    import numpy as np
    from natmix import HostTarget
    calls = 0
    def value(x):
        global calls
        calls += 1
        if calls == 31:
            os.kill(os.getpid(), signal.SIGKILL)
        return -0.5 * float(x @ x)
    HostTarget(value, 2, journal=sys.argv[1]).call(np.random.default_rng(0).normal(size=(40, 2)), False)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), tmp_path])
    assert done.returncode == -signal.SIGKILL
    assert len(Journal(tmp_path, 2)) == 30


POINTS = np.array([[0.1, -0.0], [1e-310, np.pi], [-3.0, 1e300], [2.0, 5.0]])
VALUES = [-0.1, -np.inf, np.nan, 1e38]


def written(folder) -> bytes:
    """The bytes of a journal with these points."""
    journal = Journal(folder, 2)
    for i, (point, value) in enumerate(zip(POINTS, VALUES, strict=True)):
        journal.add(point, value, None if i == 1 else point / 3, 0.5)
    journal.close()
    (path,) = folder.glob("*.jsonl")
    return path.read_bytes()


def right_records(journal) -> int:
    """How many points it knows, all of which must be right."""
    known = 0
    for i, (point, value) in enumerate(zip(POINTS, VALUES, strict=True)):
        found = journal.find(point, False)
        if found is not None:
            known += 1
            assert found.value == value or (np.isnan(value) and np.isnan(found.value))
            if i == 1:
                assert found.gradient is None
                assert journal.find(point, True) is None
            else:
                np.testing.assert_array_equal(found.gradient, point / 3)
    assert len(journal) == known
    return known


def test_numbers_are_kept_bit_for_bit(tmp_path):
    written(tmp_path)
    journal = Journal(tmp_path, 2)
    assert right_records(journal) == 4
    assert journal.find(np.array([0.1, 0.0]), False) is None  # not -0.0


def test_whatever_is_cut_off_only_the_last_records_are_lost(tmp_path, caplog):
    content = written(tmp_path / "all")
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    (tmp_path / "cut").mkdir()
    for length in range(0, len(content) + 1, 7):
        (tmp_path / "cut" / "some.jsonl").write_bytes(content[:length])
        assert right_records(Journal(tmp_path / "cut", 2)) == max(sum(end <= length for end in ends) - 1, 0)
    assert not caplog.records


def test_damage_is_skipped_with_one_warning_and_never_a_value(tmp_path, caplog):
    content = written(tmp_path / "all")
    (tmp_path / "bad").mkdir()
    path = tmp_path / "bad" / "some.jsonl"
    rng = np.random.default_rng(0)
    first = content.index(b"\n")
    for _ in range(300):
        bad, place = bytearray(content), rng.integers(len(content) - 1)
        bad[place] ^= 1 << rng.integers(8)
        path.write_bytes(bad)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="natmix"):
            known = right_records(Journal(tmp_path / "bad", 2))
        assert known == 0 if place <= first else 2 <= known <= 3
        assert len(caplog.messages) == 1
        assert str(path) in caplog.messages[0]
        assert "damaged" in caplog.messages[0]


def mutations_of_a_journal(folder, count):
    """Whatever is done to a journal: an error that names the file, or some of its records and no other."""
    content = written(folder / "all")
    (folder / "bad").mkdir()
    path = folder / "bad" / "some.jsonl"
    refused = fewer = 0
    for name, damaged in mutated(1, content, [b"{}\n", b"PK" * 40], count):
        path.write_bytes(damaged)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        message, known = None, None
        try:
            known = right_records(Journal(folder / "bad", 2))
        except ValueError as error:
            message = str(error)
        refused, fewer = refused + (known is None), fewer + (known is not None and known < len(POINTS))
        assert message is None or (str(path) in message and len(message.splitlines()) == 1), name
        assert known is None or known <= len(POINTS)
        assert tracemalloc.get_traced_memory()[1] - before < 8 * len(content) + 200_000
    return refused, fewer


@pytest.mark.parametrize(
    "count", [3 * len(MUTATIONS), pytest.param(10_000, marks=pytest.mark.slow)], ids=["some", "10,000"]
)
def test_a_damaged_journal_has_true_records_or_is_refused(count, tmp_path):
    tracemalloc.start()
    try:
        refused, fewer = mutations_of_a_journal(tmp_path, count)
    finally:
        tracemalloc.stop()
    print(f"\njournal: {refused} refused, {fewer} with fewer records, of {count}")
    assert fewer > count / 2


def test_writers_at_the_same_time_have_files_of_their_own(tmp_path):
    one, other = Journal(tmp_path, 2), Journal(tmp_path, 2)
    for i in range(20):
        (one, other)[i % 2].add(np.array([i, 0.5]), i / 7, None, 0.1)
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    both = Journal(tmp_path, 2)
    assert len(both) == 20
    for i in range(20):
        found = both.find(np.array([i, 0.5]), False)
        assert found is not None
        assert found.value == i / 7


def test_what_is_no_journal_of_this_target_is_refused(tmp_path):
    written(tmp_path / "two")
    with pytest.raises(ValueError, match="points with 2 coordinates, and the target has dim=3"):
        Journal(tmp_path / "two", 3)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="journal= names a folder"):
        Journal(tmp_path / "file", 2)


def test_a_full_disk_is_one_warning_and_half_a_record_is_taken_back(tmp_path, caplog, monkeypatch):
    journal = Journal(tmp_path, 2)
    journal.add(np.zeros(2), 1.0, None, 0.1)
    write = os.write

    def short(descriptor, data):
        write(descriptor, bytes(data)[:10])
        return 10

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.WARNING, logger="natmix"):
        for i, failing in enumerate((short, full, full)):
            monkeypatch.setattr(os, "write", failing)
            journal.add(np.full(2, i + 1.0), 2.0, None, 0.1)
        monkeypatch.undo()
        journal.add(np.full(2, 9.0), 3.0, None, 0.1)
        journal.close()
        read = Journal(tmp_path, 2)
    assert len(caplog.messages) == 2
    assert "cannot be written" in caplog.messages[0]
    assert "can be written again" in caplog.messages[1]
    assert len(read) == 2
    assert journal.find(np.full(2, 2.0), False) is not None  # still in memory


def test_a_batched_function_is_given_whole_pieces(tmp_path):
    sizes = []

    def batch(x):
        sizes.append(len(x))
        return -0.5 * np.sum(x**2, axis=1)

    points = np.random.default_rng(0).normal(size=(20, 2))
    first = HostTarget(batch, 2, batched=True, batch_size=6, journal=tmp_path)
    first.call(points[:8], False)  # pieces of 6 and 2
    values, _ = HostTarget(batch, 2, batched=True, batch_size=6, journal=tmp_path).call(points, False)
    assert sizes == [6, 2, 6, 6, 2]
    np.testing.assert_array_equal(values, -0.5 * np.sum(points**2, axis=1))
