"""A checkpoint goes to a file and comes back, bit for bit, or is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from tiny_problem import tiny

from natmix import GMMVI
from natmix.engine.chunk_runner import ChunkRunner
from natmix.experiments.runs.checkpoint import (
    Owner,
    Records,
    load_checkpoint,
    load_records,
    progress_of,
    save_checkpoint,
)
from natmix.experiments.runs.history import WeightHistory
from natmix.files.durable import CannotWriteError
from natmix.files.generations import previous

pytestmark = pytest.mark.usefixtures("quick_compilation")

REUSE = {"sample_selector": {"desired_samples": 20, "reuse_ratio": 2.0}}
OWNER = Owner(seed=3, run="this one")


def start(dtype, diagonal, components=2):
    return tiny(0, dtype).start.mixture(
        jax.random.key(1), components, jnp.dtype(dtype), "diagonal" if diagonal else "full"
    )


def records(state, trace=None):
    """Records that belong to a state."""
    iterations = int(state.iteration)
    progress = progress_of(
        {
            "iterations": iterations,
            "evaluations": 20 * iterations,
            "seconds": 1.5,
            "compile_seconds": 1.0,
            "components": int(np.sum(np.isfinite(state.mixture.log_weights))),
            "rate": 7.0,
            "next_evaluation": 2.0,
            "weight_stride": 1,
            "seeds_together": 1,
        }
    )
    ids, weights = np.arange(2), np.array([0.25, 0.75])
    history = WeightHistory.from_rows([(i + 1, ids, weights) for i in range(iterations)])
    return Records(progress, {"elbo": np.arange(float(iterations))} if trace is None else trace, history, [])


def saved(path, state, **changes):
    save_checkpoint(path, state, records(state, **changes), OWNER)
    return path


def loaded(path, runner, begun):
    mixture, prior = begun
    return load_checkpoint(path, runner.algorithm, mixture, prior, OWNER)


@pytest.fixture
def advanced():
    """After some iterations that use all kinds of memory; components come and go in test_execution.py."""
    algorithm = GMMVI.from_codename("zemtron", **REUSE)
    mixture, prior = start("float64", diagonal=True)
    runner = ChunkRunner(algorithm, tiny(0).target, 2)
    return runner, runner.advance(algorithm.init(3, mixture, prior), 7, None).state, (mixture, prior)


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)  # type: ignore[operator]
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        assert not getattr(y, "weak_type", False)
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_everything_comes_back_and_goes_on_alike(advanced, tmp_path):
    runner, state, begun = advanced
    path = saved(tmp_path / "state.safetensors", state)
    restored, found, why = loaded(path, runner, begun)
    assert not why
    expected = records(state)
    assert found.progress == expected.progress == load_records(path).progress
    np.testing.assert_array_equal(found.trace["elbo"], expected.trace["elbo"])
    np.testing.assert_array_equal(found.weights.weights, expected.weights.weights)
    assert_same(state, restored)
    there, here = runner.advance(state, 6, None), runner.advance(restored, 6, None)
    assert_same(there.state, here.state)
    for name, values in there.infos.items():
        np.testing.assert_array_equal(values, here.infos[name])


def test_the_empty_part_of_the_database_takes_no_room(tmp_path):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"database_size": 100_000})
    mixture, prior = start("float64", False)
    state = algorithm.init(0, mixture, prior, 8)
    path = saved(tmp_path / "state.safetensors", state)
    assert path.stat().st_size < 50_000
    assert_same(state, load_checkpoint(path, algorithm, mixture, prior)[0])


def test_a_negative_zero_is_not_empty(tmp_path):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"database_size": 50_000})
    mixture, prior = start("float64", False)
    state = algorithm.init(0, mixture, prior, 8)
    database = state.component_adaptation.database
    marked = database.x.at[40_000, 1].set(-0.0)
    state = jax.tree.map(lambda a: marked if a is database.x else a, state)
    restored, _, _ = load_checkpoint(saved(tmp_path / "s", state), algorithm, mixture, prior)
    assert np.signbit(np.asarray(restored.component_adaptation.database.x)[40_000, 1])


def test_two_generations_are_kept_and_a_full_disk_changes_neither(advanced, tmp_path, monkeypatch):
    runner, later, begun = advanced
    path = tmp_path / "state.safetensors"
    first = runner.algorithm.init(3, *begun)
    saved(path, first)
    saved(path, later)
    before = {file: file.read_bytes() for file in (path, previous(path))}

    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("natmix.files.durable.os.write", full)
        with pytest.raises(CannotWriteError, match=r"state\.safetensors cannot be written \(No space left"):
            saved(path, first)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert load_records(path).progress["iterations"] == 7
    assert load_records(previous(path)).progress["iterations"] == 0


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "gone"])
def test_a_damaged_newest_generation_falls_back_and_says_so(damage, advanced, tmp_path):
    runner, later, begun = advanced
    path = tmp_path / "state.safetensors"
    saved(path, runner.algorithm.init(3, *begun))
    saved(path, later)
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    kept = {"flipped": content, "cut": content[:900], "empty": b"", "gone": None}[damage]
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(kept)
    _, found, why = loaded(path, runner, begun)
    assert found.progress["iterations"] == 0
    assert "state.safetensors" in why
    previous(path).write_bytes(b"also")
    with pytest.raises(ValueError, match=r"state\.safetensors"):
        load_records(path)


def test_what_does_not_belong_together_is_refused(advanced, tmp_path):
    """With a checksum that fits: only what is checked of the content can tell."""
    runner, state, begun = advanced

    def refused(state, words, **changes):
        with pytest.raises(ValueError, match=words):
            loaded(saved(tmp_path / "s", state, **changes), runner, begun)
        (tmp_path / "s").unlink()

    def changed(leaf, value):
        return jax.tree.map(lambda a: value if a is leaf else a, state)

    refused(state, "trace has 5 rows for 7 iterations", trace={"elbo": np.zeros(5)})
    refused(state, "not equally long", trace={"elbo": np.zeros(7), "added": np.zeros(6)})
    weights = state.mixture.log_weights
    refused(changed(weights, weights + 1.0), "weights sum to 2.7")
    scale = state.mixture.components.scale
    refused(changed(scale, scale.at[0, 0].set(jnp.nan)), "components that are not finite")
    refused(changed(scale, scale.astype(jnp.float32)), "holds float32 in")
    refused(changed(scale, jnp.ones((2, 5))), r"has the shape \(2, 5\)")


def test_other_files_are_refused(tmp_path):
    algorithm = GMMVI.from_codename("semtron")
    mixture, prior = start("float64", False)
    (tmp_path / "bad").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged"):
        load_checkpoint(tmp_path / "bad", algorithm, mixture, prior)
    mixture.save(tmp_path / "mixture")
    with pytest.raises(ValueError, match="holds a mixture, not a checkpoint"):
        load_checkpoint(tmp_path / "mixture", algorithm, mixture, prior)
    path = saved(tmp_path / "other", GMMVI.from_codename("samtron").init(0, mixture, prior))
    with pytest.raises(ValueError, match="another version of the algorithm"):
        load_checkpoint(path, algorithm, mixture, prior)
    for owner, words in (
        (Owner(seed=4, run="this one"), "of seed 3, not 4"),
        (Owner(seed=3, run="x"), "another conf"),
    ):
        with pytest.raises(ValueError, match=words):
            load_checkpoint(path, algorithm, mixture, prior, owner)


def test_names_say_what_is_inside(tmp_path):
    algorithm = GMMVI.from_codename("semtron")
    mixture, prior = start("float64", False)
    path = saved(tmp_path / "s", algorithm.init(0, mixture, prior))
    with safe_open(path, framework="numpy") as file:
        names = {"state.key", "state.iteration", "state.mixture.log_weights", "trace.elbo", "weights.ids"}
        assert names <= set(file.keys())
