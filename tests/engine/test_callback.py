"""`fit(callback=...)`: what it is given, how it ends a fit, and what happens if it raises."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix.engine.trajectory import TrajectoryRecorder

pytestmark = pytest.mark.usefixtures("quick_compilation")

OPTIONS = {"dim": 2, "algorithm": "SEMTRON", "progress": False, "elbo_samples": 100}


def gaussian(x):
    return -0.5 * jnp.sum((x - 1.0) ** 2)


def fit(callback, **changes):
    return natmix.fit(gaussian, callback=callback, **{"max_iterations": 50, **OPTIONS, **changes})


def test_snapshots_tell_where_the_fit_is():
    snapshots = []

    def callback(snapshot):
        snapshots.append(snapshot)
        assert snapshot.mixture.num_components == 1

    result = fit(callback)
    assert result.stopped == "max_iterations"
    last, trajectory = snapshots[-1], result.trajectory
    assert [s.iteration for s in snapshots] == sorted({s.iteration for s in snapshots})
    assert last.iteration == 50
    assert last.components == 1
    assert last.evaluations == trajectory["total_evaluations"][-1]
    assert last.seconds == pytest.approx(trajectory["seconds"][-1])
    chunk = slice(snapshots[-2].iteration, 50)
    assert last.elbo == pytest.approx(trajectory["elbo"][chunk].mean(), rel=1e-6)
    assert last.kl == pytest.approx(trajectory["kl"][chunk].mean(), rel=1e-6)
    assert last.elbo_se <= trajectory["elbo_se"][chunk].max()
    for a, b in zip(*map(jax.tree.leaves, (last.mixture, result.mixture)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_snapshots_are_read_only():
    def callback(snapshot):
        with pytest.raises(AttributeError):
            snapshot.iteration = 3
        return True

    assert fit(callback).stopped == "callback"


def test_true_ends_the_fit_with_a_result():
    result = fit(lambda snapshot: snapshot.iteration >= 20)
    assert result.stopped == "callback"
    assert result.counts.iterations == 20
    assert result.elbo.samples == 100
    assert not result.converged
    assert not result.interrupted
    assert "stopped by the callback" in result.summary()


@pytest.mark.parametrize("answer", [None, False, 1, "stop", np.ones(3)])
def test_nothing_but_true_ends_it(answer):
    assert fit(lambda snapshot: answer, max_iterations=20).stopped == "max_iterations"


def test_a_mixture_is_had_within_the_callback_or_not_at_all():
    """The next chunk has the state's memory; what was copied stays."""
    early, late = [], []

    def callback(snapshot):
        late.append(snapshot)
        early.append(snapshot.mixture if snapshot.iteration == 1 else None)

    fit(callback)
    assert np.isfinite(np.asarray(early[0].means)).all()
    with pytest.raises(RuntimeError, match="read `mixture` within the callback"):
        _ = late[1].mixture


def test_an_error_reaches_the_caller_after_all_other_recorders_have_seen_the_chunk(monkeypatch):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    kept, seen = [], []
    monkeypatch.setattr(TrajectoryRecorder, "chunk", lambda self, run, chunk: seen.append(run.iterations))

    def callback(snapshot):
        kept.append(snapshot.mixture)
        if snapshot.iteration >= 20:
            raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        fit(callback)
    assert seen[-1] == 20
    assert np.isfinite(np.asarray(kept[-1].means)).all()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_callback_ends_the_fit_with_the_best_mixture(number):
    result = fit(lambda snapshot: snapshot.iteration >= 20 and signal.raise_signal(number))  # type: ignore[func-returns-value]
    assert result.stopped == "interrupted"
    assert result.counts.iterations == 20
    assert result.elbo.samples == 100


def test_a_callback_must_be_a_function():
    with pytest.raises(ValueError, match="callback must be a function of a snapshot, got int"):
        fit(3)
