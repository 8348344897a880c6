"""Weights over time, as a run records them."""

import numpy as np

from natmix.experiments.runs.history import MOST_RECORDS, WeightRecorder


def test_weights_are_thinned_by_doubling_the_distance():
    recorder = WeightRecorder()
    for iteration in range(1, 5001):
        if recorder.due(iteration):
            recorder.record(iteration, np.arange(3), np.log([0.2, 0.3, 0.5]))
    iterations = recorder.history().iterations
    assert MOST_RECORDS / 2 <= len(iterations) <= MOST_RECORDS
    assert iterations[0] == 1
    assert iterations[-1] > 4900
    assert np.ptp(np.diff(iterations)[1:]) <= 1


def test_absent_components_have_no_weight():
    recorder = WeightRecorder()
    recorder.record(1, np.array([4, 2, 9]), np.array([np.log(0.25), np.log(0.75), -np.inf]))
    ids, weights = recorder.history().at(0)
    assert ids.tolist() == [2, 4]
    np.testing.assert_allclose(weights, [0.75, 0.25], rtol=1e-6)
    again = WeightRecorder(recorder.history(), 4)
    assert again.history().at(-1)[0].tolist() == [2, 4]
    assert not again.due(3)
    assert again.due(4)
