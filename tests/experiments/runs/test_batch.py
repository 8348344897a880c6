"""Seeds that run together: the numbers are those of the same seeds alone, and so are limits and files."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plans import GPU
from tiny_problem import SMALL, tiny

from natmix import JaxTarget
from natmix.engine.capacity import grown
from natmix.engine.chunk_runner import CHUNK
from natmix.experiments import runs
from natmix.experiments.runs import Limits, load_run
from natmix.experiments.runs import choice as choice
from natmix.experiments.runs.batch import Targets, Together, obstacle
from natmix.experiments.runs.seed import SeedJob
from natmix.experiments.runs.stepper import Alone
from natmix.kernels.batching import batch_any
from natmix.kernels.plan import using
from tests.cli.test_run import assert_one_sentence, natmix
from tests.experiments.runs.test_execution import Recorder

pytestmark = pytest.mark.usefixtures("quick_compilation")

SEEDS = (0, 1, 2)
ITERATIONS = 30


def configuration(limits=None, dtype="float64", **overrides):
    changed = {module: {**SMALL.get(module, {}), **values} for module, values in overrides.items()}
    limits = limits or Limits(max_iterations=ITERATIONS)
    return runs.configure(tiny(dtype=dtype), overrides={**SMALL, **changed}, dtype=dtype, limits=limits)


def first_state(config, seed, rows=4):
    key, start = jax.random.split(jax.random.key(seed))
    mixture, prior = config.start.mixture(start, 1, jnp.dtype(config.dtype))
    return config.algorithm.init(key, mixture, prior, rows)


def advanced(stepper, states, iterations=ITERATIONS, chunk=20):
    """The last states and all infos, by name, with the iterations first and the seeds second."""
    infos = []
    while (done := int(states[0].iteration)) < iterations:
        results = stepper.advance(states, min(chunk, iterations - done), [None] * len(states))
        states = [r.state for r in results]
        infos.append({k: np.stack([r.infos[k] for r in results], axis=1) for k in results[0].infos})
    return states, {k: np.concatenate([i[k] for i in infos]) for k in infos[0]}


def both_ways(config, problems, rows):
    targets = [p.target for p in problems]
    fresh = [[first_state(config, s, n) for s in range(len(targets))] for n in (rows, 8)]
    together = advanced(Together(config.algorithm, targets, 1), fresh[0])
    alone = [advanced(Alone(config.algorithm, t, 1), [s]) for t, s in zip(targets, fresh[1], strict=True)]
    return together, alone


def assert_states_agree(here, there, rtol):
    """Two states, perhaps with different numbers of rows, hold the same components."""
    a, b = (dict(zip(*present(s), strict=True)) for s in (here, there))
    assert a.keys() == b.keys()
    for i, row in a.items():
        for x, y in zip(row, b[i], strict=True):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def present(state):
    rows = np.flatnonzero(np.asarray(state.mixture.log_weights) > -np.inf)
    leaves = [np.asarray(a) for a in jax.tree.leaves(state.mixture)]
    return np.asarray(state.ids)[rows].tolist(), [[a[r] for a in leaves] for r in rows]


# The numbers ------------------------------------------------------------------------------------


def assert_same(together, alone):
    states, infos = together
    assert np.all(infos["added"].sum(axis=0) > 3)
    assert np.all(infos["deleted"].sum(axis=0) > 0)
    for s, ((state,), own) in enumerate(alone):
        for name, values in own.items():
            np.testing.assert_allclose(infos[name][:, s], values[:, 0], rtol=1e-8, atol=1e-12, err_msg=name)
        assert_states_agree(states[s], state, rtol=1e-8)


def test_together_and_alone_are_the_same():
    together, alone = both_ways(configuration(), [tiny(s) for s in SEEDS], rows=4)
    assert together[0][0].mixture.num_components > 4  # it had to grow
    assert_same(together, alone)


def test_together_and_alone_are_the_same_with_reused_samples():
    config = configuration(sample_selector={"reuse_ratio": 1.0, "max_age": 4})
    assert_same(*both_ways(config, [tiny(s) for s in SEEDS[:2]], rows=4))


@pytest.mark.slow
def test_together_in_single_precision():
    problems = [tiny(s, "float32") for s in SEEDS[:2]]
    with jax.enable_x64(False):
        config = configuration(dtype="float32")
        stepper = Together(config.algorithm, [p.target for p in problems], 1)
        states, infos = advanced(stepper, [first_state(config, s) for s in SEEDS[:2]], 7)
    assert {a.dtype for a in jax.tree.leaves(states[0].mixture)} == {np.dtype("float32")}
    assert infos["added"].sum(axis=0).tolist() == [1, 1]
    assert np.all(np.isfinite(infos["elbo"]))


def test_rows_shrink_at_fixed_iterations_to_what_the_largest_seed_needs():
    config = configuration()
    stepper = Together(config.algorithm, [tiny(s).target for s in SEEDS], 1)
    wanted = {}
    for components in (2, 32, 33):
        for iteration in (CHUNK - 1, CHUNK):
            wide = [first_state(config, s, rows=128) for s in SEEDS]
            there = jnp.arange(128) < jnp.asarray([1, components, 1])[:, None]
            states = [
                dataclasses.replace(
                    state,
                    iteration=jnp.asarray(iteration, jnp.int32),
                    mixture=dataclasses.replace(state.mixture, log_weights=jnp.where(t, -1.0, -jnp.inf)),
                )
                for state, t in zip(wide, there, strict=True)
            ]
            wanted[components, iteration - CHUNK] = stepper.rows_wanted(states)
    assert wanted == {
        (2, -1): 128,
        (2, 0): 64,
        (32, -1): 128,
        (32, 0): 64,
        (33, -1): 128,
        (33, 0): 128,
    }
    states[1] = dataclasses.replace(
        states[1], mixture=dataclasses.replace(states[1].mixture, log_weights=jnp.full(128, -1.0))
    )
    full = [dataclasses.replace(s, iteration=jnp.asarray(CHUNK + 2, jnp.int32)) for s in states]  # 130
    assert stepper.rows_wanted(full) == grown(stepper._algorithm, 128, full[0].mixture.dim) > 128


def test_a_group_that_makes_no_progress_says_so(monkeypatch):
    """Rather than to try again for ever."""
    config = configuration()
    group = Together(config.algorithm, [tiny(s).target for s in (0, 1)], 4)
    monkeypatch.setattr("natmix.gmmvi.GMMVI.needs_room", lambda self, state: jnp.asarray(True))
    with pytest.raises(RuntimeError, match=r"came to a halt together, .*--apart"):
        advanced(group, [first_state(config, s) for s in (0, 1)], 5)


def test_states_of_finished_seeds_stay_readable():
    config = configuration()
    stepper = Together(config.algorithm, [tiny(s).target for s in SEEDS], 1)
    results = stepper.advance([first_state(config, s) for s in SEEDS], 3, [None] * 3)
    left = results[0].state
    before = np.asarray(left.mixture.log_weights).copy()
    for _ in range(2):
        results = stepper.advance([r.state for r in results[-2:]], 1, [None] * 2)
    assert [int(r.state.iteration) for r in results] == [5, 5]
    np.testing.assert_array_equal(left.mixture.log_weights, before)


def test_states_have_their_samples_when_they_are_asked_for_and_until_the_group_goes_on():
    config = configuration(sample_selector={"reuse_ratio": 1.0, "max_age": 4})
    targets = [tiny(s).target for s in SEEDS[:2]]
    together = Together(config.algorithm, targets, 1)
    results = together.advance([first_state(config, s, 8) for s in SEEDS[:2]], 5, [None] * 2)
    for seed, result in zip(SEEDS, results, strict=False):
        alone = Alone(config.algorithm, targets[seed], 1).advance([first_state(config, seed, 8)], 5, [None])
        whole = result.whole()
        assert result.state.sample_selector is None
        assert jax.tree.structure(whole) == jax.tree.structure(alone[0].state)
        for a, b in zip(*map(jax.tree.leaves, (whole, alone[0].state)), strict=True):
            if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
                a, b = jax.random.key_data(a), jax.random.key_data(b)
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    together.advance([r.state for r in results], 1, [None] * 2)
    with pytest.raises(RuntimeError, match="has gone on"):
        results[0].whole()


# Branches and loops -----------------------------------------------------------------------------


def test_branches_stay_branches_and_loops_stay_short():
    def branch(x):
        return jax.lax.cond(batch_any(x > 2), lambda: jnp.where(x > 2, jnp.sin(x), 0.0), lambda: 0.0)

    x = jnp.arange(4.0)
    assert "cond" in str(jax.make_jaxpr(jax.vmap(branch))(x))
    np.testing.assert_allclose(jax.vmap(branch)(x), np.where(x > 2, np.sin(x), 0))
    assert batch_any(jnp.asarray(False)) == False  # noqa: E712

    def rounds(n):
        return jax.lax.fori_loop(0, batch_max(n), lambda _, c: c + 1, 0)

    assert jax.vmap(rounds)(jnp.array([1, 5, 3])).tolist() == [5, 5, 5]
    assert rounds(jnp.asarray(2)) == 2


def test_the_search_for_a_new_component_stays_a_branch(monkeypatch):
    config, target = configuration(), tiny().target
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *(first_state(config, s) for s in SEEDS))

    def branches():
        program = jax.make_jaxpr(jax.vmap(lambda s: config.algorithm.step(s, target)))(stacked)
        return str(program).count("cond[")

    agreed = branches()
    monkeypatch.setattr("natmix.modules.component_adaptation.vips.batch_any", lambda flag: flag)
    assert branches() < agreed


# Targets ----------------------------------------------------------------------------------------


def test_what_targets_share_is_kept_once():
    same = Targets.build([tiny(4).target, tiny(4).target])
    assert jax.tree.leaves(same.varying) == []
    other = Targets.build([tiny(s).target for s in SEEDS])
    assert [a.shape for a in jax.tree.leaves(other.varying)] == [(3, 2, 2)]


def test_targets_that_cannot_run_together():
    assert obstacle([tiny(s).target for s in SEEDS]) is None
    assert "differ in shape" in obstacle([tiny().target, tiny(centres=np.zeros((3, 2))).target])
    assert "different functions" in obstacle([JaxTarget(lambda x: -x @ x, 2), JaxTarget(lambda x: x[0], 2)])


# Whole runs -------------------------------------------------------------------------------------


def execute(out, seeds=SEEDS, together=True, limits=None, load=tiny, **arguments):
    return runs.execute(configuration(limits), seeds, out, load, together=together, **arguments)


def assert_runs_agree(here, there, seeds=SEEDS):
    for seed in seeds:
        a, b = load_run(here).seeds[seed], load_run(there).seeds[seed]
        for name in a.trace.keys() - {"seconds"}:
            np.testing.assert_allclose(a.trace[name], b.trace[name], rtol=1e-6, atol=1e-9, err_msg=name)
        for name in ("iterations", "evaluations", "components", "stopped"):
            assert a.final[name] == b.final[name], name
        np.testing.assert_allclose(a.final["neg_elbo"], b.final["neg_elbo"], rtol=1e-6)


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "apart"
    execute(out, together=False)
    return out


def test_runs_together_leave_what_runs_apart_leave(apart, tmp_path):
    watcher = Recorder()
    outcome = execute(tmp_path / "run", watcher=watcher)
    assert outcome.failed == ()
    assert [e[:2] for e in watcher.events] == [("began", s) for s in SEEDS] + [("finished", s) for s in SEEDS]
    assert_runs_agree(tmp_path / "run", apart)


def test_unfinished_seeds_go_on_with_those_at_the_same_iteration(apart, tmp_path, monkeypatch):
    monkeypatch.setattr("natmix.experiments.runs.seed.CHUNK", 8)
    out = tmp_path / "run"

    execute(out, limits=Limits(max_iterations=17), keep_checkpoints=True)
    execute(out, seeds=(1,), limits=Limits(max_iterations=20), together=False, keep_checkpoints=True)
    # Seeds 0 and 2 are at the same iteration, and seed 1 goes on apart.
    watcher = Recorder()
    execute(out, watcher=watcher)
    assert watcher.events[:2] == [("began", 0, 17), ("began", 2, 17)]
    assert watcher.events[-2:] == [("began", 1, 20), ("finished", 1, "max_iterations")]
    assert_runs_agree(out, apart)


def test_each_seed_keeps_its_own_budget(tmp_path):
    limits = Limits(max_evaluations=2000, max_iterations=200)
    outs = [tmp_path / name for name in ("together", "apart")]
    for out in outs:
        execute(out, limits=limits, together=out.name == "together")
    assert_runs_agree(*outs)
    finals = [s.final for s in load_run(outs[0]).seeds.values()]
    assert len({f["iterations"] for f in finals}) > 1
    assert all(1700 < f["evaluations"] <= 2000 for f in finals)


def test_a_limit_of_time_ends_a_group_at_once(tmp_path, monkeypatch):
    """However long it took to begin one seed, or to finish another."""
    begin, finish = SeedJob._begin, SeedJob.finish
    programs = []
    monkeypatch.setattr(SeedJob, "_begin", lambda job: (begin(job), time.sleep(0.2))[0])

    def slow_finish(job, keep):
        with job.clock.pause():
            time.sleep(0.5)
            return finish(job, keep)

    def counted(self, group):
        programs.append(group.size)
        return compiled(self, group)

    compiled = Together._compiled
    monkeypatch.setattr(SeedJob, "finish", slow_finish)
    monkeypatch.setattr(Together, "_compiled", counted)
    limits = Limits(max_run_seconds=3.0, max_iterations=10**6)
    execute(tmp_path / "run", limits=limits)
    finals = [seed.final for seed in load_run(tmp_path / "run").seeds.values()]
    assert len({f["iterations"] for f in finals}) == 1
    assert {f["stopped"] for f in finals} == {"max_run_seconds"}
    assert set(programs) == {len(SEEDS)}  # no seed went on in a smaller group


def test_a_failing_seed_leaves_the_group(apart, tmp_path):
    def load(seed):
        return tiny(centres=np.full((2, 2), np.nan)) if seed == 7 else tiny(seed)

    outcome = execute(tmp_path / "run", (7, 0, 1), load=load)
    assert outcome.failed == (7,)
    assert_runs_agree(tmp_path / "run", apart, (0, 1))


def test_a_group_that_breaks_goes_on_apart_unless_together_was_asked_for(apart, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "faster_together", lambda *_: True)
    monkeypatch.setattr(Together, "advance", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    outcome = execute(tmp_path / "run", together=None)
    assert outcome.failed == ()
    assert_runs_agree(tmp_path / "run", apart)
    assert execute(tmp_path / "other", together=True).failed == SEEDS


def test_a_group_that_has_grown_too_large_goes_on_apart(apart, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "faster_together", lambda algorithm, rows, dim, seeds: rows <= 4)
    monkeypatch.setattr("natmix.experiments.runs.seed.initial_capacity", lambda algorithm, components, dim: 4)
    monkeypatch.setattr(choice, "initial_capacity", lambda algorithm, components, dim: 4)
    watcher = Recorder()
    outcome = execute(tmp_path / "run", together=None, watcher=watcher)
    began = [e for e in watcher.events if e[0] == "began"]
    assert began[:3] == [("began", s, 0) for s in SEEDS]
    assert [e[1] for e in began[3:]] == list(SEEDS)
    assert len({e[2] for e in began[3:]}) == 1
    assert 0 < began[3][2] < ITERATIONS
    assert outcome.failed == ()
    assert_runs_agree(tmp_path / "run", apart)


def test_targets_of_different_shapes_run_apart_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "faster_together", lambda *_: True)

    def load(seed):
        return tiny(centres=np.zeros((2 + seed, 2)))

    alone = []
    monkeypatch.setattr(
        "natmix.experiments.runs.execution._Work.apart", lambda self, seeds: alone.extend(seeds)
    )
    execute(tmp_path / "run", (0, 1), None, Limits(max_iterations=3), load)
    assert alone == [0, 1]
    with pytest.raises(ValueError, match=r"cannot run together: .* differ in shape"):
        execute(tmp_path / "other", (0, 1), True, Limits(max_iterations=3), load)


def test_the_rule():
    algorithm = configuration().algorithm
    assert not choice.faster_together(algorithm, 8, 2, 5)  # a CPU
    assert choice.step_size(algorithm, 8, 2, 5) == 8 * 160 * 2 * 5
    with using(GPU):
        assert choice.faster_together(algorithm, 8, 2, 5)
        assert not choice.faster_together(algorithm, 8, 2, 1)
        assert not choice.faster_together(algorithm, 4096, 20, 5)


@pytest.mark.parametrize(("way", "together"), [((), None), (("--together",), True), (("--apart",), False)])
def test_the_command_line(way, together, tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise ValueError(f"together is {named['together']}")

    monkeypatch.setattr(runs, "execute", refuse)
    outcome = natmix("run", "gmm2", "--seeds", "0:2", "--max-iters", 3, "--out", tmp_path / "run", *way)
    assert_one_sentence(outcome, f"together is {together}")
