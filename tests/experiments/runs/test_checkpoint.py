"""A state goes to a file and comes back, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from tiny_problem import tiny

from natmix import GMMVI
from natmix.engine.chunk_runner import ChunkRunner
from natmix.experiments.runs.checkpoint import load_state, save_state
from natmix.experiments.runs.loading import read_arrays
from natmix.files import write_arrays

pytestmark = pytest.mark.usefixtures("quick_compilation")

REUSE = {"sample_selector": {"desired_samples": 20, "reuse_ratio": 2.0}}


def start(dtype, diagonal, components=2):
    return tiny(0, dtype).start.mixture(
        jax.random.key(1), components, jnp.dtype(dtype), "diagonal" if diagonal else "full"
    )


@pytest.fixture
def advanced():
    """After some iterations that use all kinds of memory; components come and go in test_runs_execute.py."""
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
    path = tmp_path / "state.safetensors"
    save_state(path, state, {"iterations": 7, "seconds": 1.5})
    restored, progress = load_state(path, runner.algorithm, *begun)
    assert progress == {"iterations": 7, "seconds": 1.5}
    assert_same(state, restored)
    there, here = runner.advance(state, 6, None), runner.advance(restored, 6, None)
    assert_same(there.state, here.state)
    for name, values in there.infos.items():
        np.testing.assert_array_equal(values, here.infos[name])


def test_the_empty_part_of_the_database_takes_no_room(tmp_path):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"database_size": 100_000})
    mixture, prior = start("float64", False)
    state = algorithm.init(0, mixture, prior, 8)
    path = tmp_path / "state.safetensors"
    save_state(path, state, {})
    assert path.stat().st_size < 50_000
    restored, _ = load_state(path, algorithm, mixture, prior)
    assert_same(state, restored)


def test_a_negative_zero_is_not_empty(tmp_path):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"database_size": 50_000})
    mixture, prior = start("float64", False)
    state = algorithm.init(0, mixture, prior, 8)
    database = state.component_adaptation.database
    marked = database.x.at[40_000, 1].set(-0.0)
    state = jax.tree.map(lambda a: marked if a is database.x else a, state)
    save_state(tmp_path / "s", state, {})
    restored, _ = load_state(tmp_path / "s", algorithm, mixture, prior)
    assert np.signbit(np.asarray(restored.component_adaptation.database.x)[40_000, 1])


def test_the_file_is_replaced_in_one_step(tmp_path, monkeypatch):
    algorithm = GMMVI.from_codename("semtron")
    mixture, prior = start("float64", False)
    path = tmp_path / "state.safetensors"
    save_state(path, algorithm.init(0, mixture, prior), {"iterations": 1})

    def half(tensors, name, header):
        name.write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr("natmix.experiments.runs.checkpoint.save_file", half)
    with pytest.raises(OSError, match="full"):
        save_state(path, algorithm.init(5, mixture, prior), {"iterations": 2})
    assert load_state(path, algorithm, mixture, prior)[1] == {"iterations": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_other_files_are_refused(tmp_path):
    algorithm = GMMVI.from_codename("semtron")
    mixture, prior = start("float64", False)
    (tmp_path / "bad").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged"):
        load_state(tmp_path / "bad", algorithm, mixture, prior)
    mixture.save(tmp_path / "mixture")
    with pytest.raises(ValueError, match="no checkpoint this natmix can read"):
        load_state(tmp_path / "mixture", algorithm, mixture, prior)
    other = GMMVI.from_codename("samtron")
    save_state(tmp_path / "other", other.init(0, mixture, prior), {})
    with pytest.raises(ValueError, match="another version of the algorithm"):
        load_state(tmp_path / "other", algorithm, mixture, prior)


def test_names_say_what_is_inside(tmp_path):
    algorithm = GMMVI.from_codename("semtron")
    mixture, prior = start("float64", False)
    save_state(tmp_path / "s", algorithm.init(0, mixture, prior), {})
    with safe_open(tmp_path / "s", framework="numpy") as file:
        assert {".key", ".iteration", ".mixture.log_weights"} <= set(file.keys())


def test_arrays_are_written_alike_by_any_numpy(tmp_path, monkeypatch):
    new = np.savez_compressed

    def savez_compressed(file, *args, **arrays):  # before 2.2 it knew no allow_pickle
        new(file, *args, **{f"_{name}" if name == "allow_pickle" else name: a for name, a in arrays.items()})

    monkeypatch.setattr(np, "savez_compressed", savez_compressed)
    write_arrays(tmp_path / "a.npz", {"x": np.arange(3)})
    assert list(read_arrays(tmp_path / "a.npz")) == ["x"]
