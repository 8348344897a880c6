"""No number of a run depends on the clock: docs/determinism.md."""

import sys
from typing import Any

import jax
import numpy as np
import pytest
from tiny_problem import SMALL, tiny

import natmix
from natmix.engine import single_run
from natmix.engine.convergence import StoppingRule
from natmix.experiments import runs
from natmix.experiments.runs import Limits, load_run

pytestmark = pytest.mark.usefixtures("quick_compilation")

GROWING: dict[str, Any] = {
    "sample_selector": {"desired_samples": 20},
    "component_adaptation": {
        "add_iters": 5,
        "del_iters": 50,
        "database_size": 500,
        "prior_candidates": 10,
    },
}
"""Components come fast, so that the capacity has to grow."""


@pytest.fixture(params=[0.0, 0.02, 1e9], ids=["one iteration", "some", "as many as possible"])
def chunk_seconds(request, monkeypatch):
    monkeypatch.setattr(single_run, "CHUNK_SECONDS", request.param)
    return request.param


@pytest.fixture(scope="module")
def first():
    """Of each test, what the first chunk length gave."""
    return {}


def assert_same(here, there):
    assert here.keys() == there.keys()
    for name, value in here.items():
        np.testing.assert_array_equal(value, there[name], err_msg=name)


def test_fit_does_not_depend_on_the_length_of_chunks(chunk_seconds, first, monkeypatch):
    """Nor do growing and shrinking of the capacity."""
    monkeypatch.setattr(sys.modules["natmix.fit"], "initial_capacity", lambda *arguments: 64)
    for module in ("runner", "capacity"):
        monkeypatch.setattr(f"natmix.engine.{module}.fewest_slots", lambda dim: 2)
    capacities = {}

    def callback(snapshot):
        capacities[snapshot.iteration] = snapshot._state.mixture.num_components

    options: dict[str, Any] = {
        "init_scale": 3.0,
        "max_iterations": 110,
        "accuracy": 0.0,
    }
    result = natmix.fit(tiny().target, callback=callback, **options, **GROWING)
    numbers = {k: v for k, v in result.trajectory.items() if k != "seconds"}
    numbers["mixture"] = np.concatenate([np.ravel(a) for a in jax.tree.leaves(result.mixture)])
    numbers["elbo"] = np.array([result.elbo.value, result.elbo.standard_error])
    assert (len(capacities) == 110) == (chunk_seconds == 0)
    assert capacities[1] == 32  # it has shrunk
    assert capacities[40] == 16  # twice
    assert capacities[110] > 16  # and grown
    for iteration in range(20, 110, 20):
        assert first.setdefault(iteration, capacities[iteration]) == capacities[iteration]
    assert_same(numbers, first.setdefault("fit", numbers))


def test_runs_do_not_depend_on_the_length_of_chunks(chunk_seconds, first, tmp_path):
    limits = Limits(max_iterations=150)
    config = runs.configure(tiny(), overrides=SMALL, dtype="float64", limits=limits)
    runs.execute(config, [0], tmp_path / "run", tiny)
    seed = load_run(tmp_path / "run").seeds[0]
    numbers = {k: v for k, v in seed.trace.items() if k != "seconds"}
    numbers["mixture"] = np.concatenate([np.ravel(a) for a in jax.tree.leaves(seed.mixture)])
    numbers["final"] = np.array([seed.final["neg_elbo"], seed.final["first_mean"]])
    assert_same(numbers, first.setdefault("runs", numbers))


def converging(limits, **arguments):
    """A fixed number of components on two bumps: it converges."""
    overrides = {"sample_selector": {"desired_samples": 20}}
    return runs.configure(
        tiny(), "semtron", overrides=overrides, components=2, dtype="float64", limits=limits, **arguments
    )


def test_a_run_stops_when_it_has_converged_also_if_it_was_interrupted(tmp_path, monkeypatch):
    """The stopping rule is replayed from the trace, so that it decides as if nothing had happened."""
    most = 3000
    until = Limits(max_iterations=most, until_converged=True)
    whole = runs.execute(converging(until), [0], tmp_path / "whole", tiny).run.seeds[0].final
    assert whole["stopped"] == "converged"
    assert 300 <= whole["iterations"] < most
    assert whole["iterations"] % 20 == 0

    out, part = tmp_path / "parts", Limits(max_iterations=whole["iterations"] - 7, until_converged=True)
    runs.execute(converging(part), [0], out, tiny, keep_checkpoints=True)
    replayed = []
    replay = StoppingRule.replay
    monkeypatch.setattr(
        StoppingRule,
        "replay",
        lambda self, trace: replayed.append(len(trace["elbo"])) or replay(self, trace),  # type: ignore[func-returns-value]
    )
    parts = runs.execute(converging(until), [0], out, tiny, keep_checkpoints=True).run.seeds[0].final
    assert replayed == [whole["iterations"] - 7]
    for name in ("stopped", "iterations", "neg_elbo"):
        assert parts[name] == whole[name], name
    # The same call again has nothing to do; without the rule it goes on.
    again = runs.execute(converging(until), [0], out, tiny).run.seeds[0].final
    assert again["iterations"] == whole["iterations"]
    longer = Limits(max_iterations=whole["iterations"] + 30)
    more = runs.execute(converging(longer), [0], out, tiny).run.seeds[0].final
    assert (more["stopped"], more["iterations"]) == ("max_iterations", whole["iterations"] + 30)


def test_the_rule_changes_no_number_of_a_run_and_is_off_unless_asked_for(tmp_path):
    limits = [Limits(max_iterations=150), Limits(max_iterations=150, until_converged=True)]
    traces = []
    for i, limit in enumerate(limits):
        config = runs.configure(tiny(), overrides=SMALL, dtype="float64", limits=limit)
        runs.execute(config, [0], tmp_path / str(i), tiny)
        trace = load_run(tmp_path / str(i)).seeds[0].trace
        traces.append({k: v for k, v in trace.items() if k != "seconds"})
    assert_same(*traces)
    assert not runs.configure(tiny(name="stm20"), preset="paper").limits.until_converged
    assert not runs.configure(tiny()).limits.until_converged
