"""10,000 simulated trials over 200 simulated workers: neither time nor storage per trial grows."""

from pathlib import Path

import pytest
from simulated_study import CELLS, in_memory, simulate

pytestmark = pytest.mark.slow


def test_ten_thousand_trials():
    with in_memory() as folder:
        times, sizes = simulate(Path(folder), 10_000, 200)
    assert times[3] < 2 * times[0], times
    assert sizes[3] < 1.2 * sizes[0], sizes


def test_ten_thousand_trials_with_a_journal():
    pytest.importorskip("optuna")
    with in_memory() as folder:
        times, sizes = simulate(Path(folder), 10_000, 200, "journal")
    assert times[3] < 2 * times[0], times
    assert sizes[3] < 1.2 * sizes[0], sizes


def test_cells_of_the_simulation(tmp_path):
    times, _ = simulate(tmp_path, 4 * CELLS, 5)
    assert len(times) == 4
