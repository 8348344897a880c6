"""The clock that seeds share."""

import pytest

from natmix.engine import clock
from natmix.engine.clock import Clock


class FakeTime:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def fake(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(clock, "time", fake)
    return fake


def test_pauses_take_no_time_and_stop_the_clock(fake):
    clock = Clock()
    fake.now += 3
    with clock.pause():
        fake.now += 50
        assert clock.read() == 3
    assert clock.read() == 3
    fake.now += 1
    assert clock.read() == 4


def test_a_pause_within_a_pause_is_not_counted_twice(fake):
    clock = Clock()
    with clock.pause():
        fake.now += 10
        with clock.pause():
            fake.now += 20
        fake.now += 5
        assert clock.read() == 0
    fake.now += 2
    assert clock.read() == 2


def test_a_pause_ends_with_an_error(fake):
    clock = Clock()

    def fails():
        with clock.pause():
            fake.now += 7
            raise ValueError("Boom")

    with pytest.raises(ValueError, match="Boom"):
        fails()
    fake.now += 1
    assert clock.read() == 1


def test_seconds_of_other_work_are_left_out():
    clock = Clock()
    before = clock.read()
    clock.leave_out(5.0)
    assert clock.read() < before - 4
