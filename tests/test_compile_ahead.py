"""On accelerators the program for more rows is compiled in the background."""

import jax
import numpy as np
import pytest
from helpers import mixture_target, random_mixture
from test_algorithm import counting, start

import natmix._run
from natmix import GMMVI
from natmix._run import Runner

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_programs_compiled_ahead_are_used_and_change_nothing(monkeypatch):
    target = mixture_target(random_mixture(12, 3, 2, spread=3.0))
    algo = GMMVI.from_codename(
        "SAMTRON",
        sample_selector={"desired_samples": 5},
        component_adaptation={"add_iters": 2, "del_iters": 50, "database_size": 600, "max_components": 16},
    )

    def run_to_16(ahead):
        monkeypatch.setattr(natmix._run, "_compiles_ahead", lambda: ahead)
        jax.clear_caches()
        traces = counting(monkeypatch)
        runner = Runner(algo, target, 16)
        state = algo.init(0, start(K=1), capacity=8)
        by_thread, known = set(), 0
        while int(state.iteration) < 40:
            state = runner.advance(state, 4, None).state
            if runner._ahead is not None:
                by_thread.add(runner._ahead[0])
                runner._ahead[1].join()
                known = len(traces)
        return jax.tree.map(np.asarray, state.mixture), by_thread, len(traces) - known

    without, nobody, _ = run_to_16(ahead=False)
    mixture, by_thread, later = run_to_16(ahead=True)
    assert nobody == set()
    assert by_thread == {16}
    assert later == 0  # the program for 16 rows was not traced again when it was needed
    assert mixture.num_components == 16
    jax.tree.map(np.testing.assert_array_equal, mixture, without)
