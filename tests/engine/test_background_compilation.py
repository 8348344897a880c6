"""The program for a larger capacity is compiled in the background."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_mixture

from natmix import GMMVI, JaxTarget
from natmix.engine import background_compilation
from natmix.engine.batch_runner import BatchRunner
from natmix.engine.chunk_runner import ChunkRunner
from tests.test_gmmvi import counting, start

pytestmark = pytest.mark.usefixtures("quick_compilation")

ALGORITHM = GMMVI.from_codename(
    "SAMYFUX",
    sample_selector={"desired_samples": 5},
    component_adaptation={"add_iters": 2, "del_iters": 50, "database_size": 600, "max_components": 16},
)
MIXTURE = random_mixture(12, 3, 2, spread=3.0)


class Spied(background_compilation.BackgroundCompilation):
    """Waits for what it starts, and writes down what that was."""

    def __init__(self, traces):
        super().__init__()
        self.traces, self.capacities, self.known = traces, set(), 0

    def start(self, capacity, compile_program):
        super().start(capacity, compile_program)
        self.wait_for(capacity)
        self.capacities.add(capacity)
        self.known = len(self.traces)


@pytest.mark.parametrize("seeds", [1, 2])
def test_programs_compiled_in_the_background_are_used_and_change_nothing(monkeypatch, seeds):
    def run_to_16(ahead):
        monkeypatch.setattr(background_compilation, "_host_has_time", lambda: ahead)
        traces = counting(monkeypatch)
        target = JaxTarget(lambda x: MIXTURE.log_prob(x), 2)  # another function: no program is there yet
        runner = ChunkRunner(ALGORITHM, target, 16)
        if seeds > 1:
            runner = BatchRunner(ALGORITHM, [target] * seeds, 16)  # type: ignore[assignment]
        spy = runner._background = Spied(traces)
        states = [ALGORITHM.init(seed, start(K=1), capacity=8) for seed in range(seeds)]
        while int(states[0].iteration) < 40:
            states = [r.state for r in runner.advance_batch(states, 4, [None] * seeds)]
        return [jax.tree.map(np.asarray, s.mixture) for s in states], spy.capacities, len(traces) - spy.known

    without, nobody, _ = run_to_16(ahead=False)
    mixtures, by_thread, later = run_to_16(ahead=True)
    assert nobody == set()
    assert by_thread == {16}
    assert later == 0  # the program for 16 components was not traced again when it was needed
    assert max(m.num_components for m in mixtures) == 16
    jax.tree.map(np.testing.assert_array_equal, mixtures, without)


@pytest.mark.parametrize("cores", [2, 4])
def test_few_cores_have_no_time_for_it(monkeypatch, cores):
    monkeypatch.setenv("NPROC", str(cores))
    assert background_compilation.BackgroundCompilation().due(8, 4, 16) == (cores == 4)
    assert not background_compilation.BackgroundCompilation().due(8, 3, 16)
    assert not background_compilation.BackgroundCompilation().due(8, 8, 8)


@pytest.mark.parametrize("double", [False, True])
def test_the_thread_is_as_precise_as_the_one_that_starts_it(double):
    seen = []
    ahead = background_compilation.BackgroundCompilation()
    with jax.enable_x64(double):
        ahead.start(16, lambda: seen.append(jnp.zeros(1).dtype))
    ahead.wait_for(16)
    assert seen == [np.float64 if double else np.float32]


def test_an_error_in_the_background_is_nobodys_business():
    ahead = background_compilation.BackgroundCompilation()
    ahead.start(16, lambda: 1 / 0)
    ahead.wait_for(16)
