"""When a run has converged, and which mixture was the best, on sequences with a known answer."""

import numpy as np
import pytest

from natmix.engine.convergence import PATIENCE, BestMixture, Convergence

WINDOW = 100
NOBODY = (np.array([0]), np.array([1.0]))


def stops_at(objective, chunk=10, ids=NOBODY[0], weights=NOBODY[1], tolerance=1e-3, births=None):
    """The iteration at which a run with this objective would stop, None if it never does."""
    watch = Convergence(tolerance, WINDOW, components=1)
    for end in range(chunk, len(objective) + 1, chunk):
        watch.update(objective[end - chunk : end], 1 if births is None else births(end))
        if watch.reached(ids, weights):
            return end
    return None


@pytest.mark.parametrize("chunk", [1, 7, 100])
@pytest.mark.parametrize("noise", [0.0, 1e-4, 0.1, 30.0])
def test_stops_when_flat(noise, chunk):
    values = -3 + noise * np.random.default_rng(0).normal(size=3000)
    stop = stops_at(values, chunk)
    assert stop is not None
    assert PATIENCE * WINDOW <= stop <= 8 * WINDOW


def test_waits_for_the_end_of_an_exponential_rise():
    t = np.arange(10_000)
    values = -np.exp(-t / 400) + 1e-3 * np.random.default_rng(1).normal(size=t.size)
    stop = stops_at(values)
    assert stop is not None
    # At the end less than the noise of a window is left to gain within one.
    assert 1200 < stop < 5000
    assert np.exp(-stop / 400) < 0.03


def test_does_not_stop_while_rising():
    """A rise of five standard errors from window to window is never taken for none."""
    stopped = 0
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(size=4000)
        error = np.sqrt(2 / WINDOW)
        values = 5 * error * np.arange(4000) / WINDOW + noise
        stopped += stops_at(values) is not None
    assert stopped <= 1


def test_tolerance_decides_when_there_is_no_noise():
    t = np.arange(5000) / WINDOW
    assert stops_at(0.01 * t, tolerance=1e-3) is None
    assert stops_at(0.01 * t, tolerance=0.1) is not None


def test_correlated_noise_is_no_rise_and_no_certainty():
    rng = np.random.default_rng(2)
    values = np.zeros(4000)
    for i in range(1, 4000):
        values[i] = 0.9 * values[i - 1] + rng.normal()
    assert stops_at(values) is not None


def test_not_finite_never_converges():
    assert stops_at(np.full(2000, np.nan)) is None
    assert stops_at(np.full(2000, -np.inf)) is None


def test_a_newcomer_with_weight_keeps_it_going():
    flat = np.zeros(3000)

    def births(iteration):
        return 1 + int(iteration >= 1000)

    ids, weights = np.array([0, 1]), np.array([0.9, 0.1])
    # The second component was there from the start of the watch until 1000: too late to be seen.
    assert stops_at(flat[:1000], ids=ids[:1], weights=weights[:1], births=births) is not None
    watch = Convergence(1e-3, WINDOW, components=1)
    stop = None
    for end in range(10, 3001, 10):
        watch.update(flat[:10], births(end))
        if end > 1000 and watch.reached(ids, weights):
            stop = end
            break
    assert stop is not None
    assert 1000 + PATIENCE * WINDOW <= stop <= 1000 + PATIENCE * WINDOW + 20
    watch = Convergence(1e-3, WINDOW, components=1)
    watch.update(flat[:1000], 1)
    watch.update(flat[:10], 2)
    assert not watch.reached(ids, weights)
    assert watch.reached(ids, np.array([1 - 1e-9, 1e-9]))


def test_memory_does_not_grow_with_the_run():
    watch = Convergence(1e-3, WINDOW, components=1)
    for i in range(3000):
        watch.update(np.zeros(1), i)
    assert len(watch._objective) == 2 * WINDOW
    assert len(watch._births) <= PATIENCE * WINDOW + 2


def best_of(means, noise, seed=0):
    rng = np.random.default_rng(seed)
    best = BestMixture("start")  # type: ignore[arg-type]
    for i, mean in enumerate(means):
        best.update(np.array([mean + noise * rng.normal()]), np.array([noise]), lambda i=i: i)  # type: ignore[misc]
    return best


def test_luck_does_not_win():
    """Thousands of equal mixtures with noisy objectives: the last one is as good as any."""
    beaten = sum(best_of(np.zeros(3000), 1.0, seed).beats_last(1e-3) for seed in range(20))
    assert beaten <= 1


def test_iterations_that_reuse_samples_are_not_independent():
    """Every objective is the mean of new noise and that of the three iterations before."""
    beaten = {0.0: 0, 3.0: 0}
    for reused in beaten:
        for seed in range(30):
            noise = 2 * np.convolve(np.random.default_rng(seed).normal(size=1000), np.full(4, 0.25), "valid")
            best = BestMixture("start", reused)  # type: ignore[arg-type]
            for i, value in enumerate(noise):
                best.update(np.array([value]), np.ones(1), lambda i=i: i)  # type: ignore[misc]
            beaten[reused] += best.beats_last(1e-3)
    assert beaten[3.0] <= 1 < beaten[0.0]


def test_a_collapse_is_noticed():
    best = best_of([*np.linspace(-5, 0, 200), *np.full(50, -4.0)], 0.1)
    assert best.beats_last(1e-3)
    assert 150 < best.mixture < 205


def test_nothing_finite_leaves_the_start():
    best = best_of(np.full(20, np.nan), 0.0)
    assert best.mixture == "start"
    assert best.beats_last(1e-3)
