"""What Stan's compiler takes is shown and not counted."""

import io
import sys
import time

from natmix.engine.clock import Clock
from natmix.models.stan_backends import compiling


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_seconds_are_counted_on_a_terminal_and_the_line_is_cleared(monkeypatch):
    monkeypatch.setattr(compiling, "_QUIET_SECONDS", 0.02)
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with compiling.shown_compiling():
        time.sleep(0.1)
    written = stderr.getvalue()
    assert "Compiling the Stan program (once, the result is kept) … 0 s" in written
    assert written.endswith("\r\x1b[K")


def test_nothing_is_written_elsewhere(monkeypatch):
    monkeypatch.setattr(compiling, "_QUIET_SECONDS", 0.001)
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with compiling.shown_compiling():
        time.sleep(0.02)
    assert stderr.getvalue() == ""


def test_the_clock_leaves_it_out():
    clock = Clock()
    before = clock.read()
    clock.leave_out(5.0)
    assert clock.read() < before - 4
