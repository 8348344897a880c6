"""Files: exact round trips, and a sentence for everything that can be wrong with one."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from natmix import Mixture
from natmix.files.arrays import write_arrays
from natmix.files.seal import MIXTURE, VERSION
from natmix.gaussians import FullGaussians
from natmix.mixture.files import load_metadata

jax.config.update("jax_enable_x64", True)


def mixture(kind: str = "full", dtype: Any = np.float64) -> Mixture:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 2)).astype(dtype)
    if kind == "diagonal":
        return Mixture.diagonal([1, 2, 0], means, rng.uniform(0.1, 2, (3, 2)))
    A = rng.normal(size=(3, 2, 2))
    return Mixture.full([1, 2, 0], means, A @ np.swapaxes(A, 1, 2) + np.eye(2))


def write(path: Path, header: dict[str, str] | None = None, **changes: Any) -> Path:
    """A file as natmix writes it, with some parts changed (None: left out)."""
    q = mixture("diagonal")
    tensors = {"log_weights": q.log_weights, "mean": q.means, "scale": q.components.scale} | changes  # type: ignore[attr-defined]
    standard = {"representation": "diagonal", "metadata": "{}"}
    kept = {name: np.asarray(value) for name, value in tensors.items() if value is not None}
    write_arrays(path, MIXTURE, kept, standard | (header or {}))
    return path


@pytest.mark.parametrize("kind", ["full", "diagonal"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip_is_exact(tmp_path: Path, kind: str, dtype: Any) -> None:
    q = mixture(kind, dtype)
    q.save(tmp_path / "q.safetensors")
    again = Mixture.load(str(tmp_path / "q.safetensors"))
    assert eqx.tree_equal(q, again)
    assert again.log_weights[2] == -np.inf
    assert [p.name for p in tmp_path.iterdir()] == ["q.safetensors"]


def test_round_trip_after_an_update_keeps_the_stored_arrays(tmp_path: Path) -> None:
    q = mixture(dtype=np.float32)
    g = q.components
    moved = g.moved(g.factor(g.plus_identity(g.covariance())), g.mean)
    Mixture(q.log_weights, moved).save(tmp_path / "q")
    again = Mixture.load(tmp_path / "q").components
    assert isinstance(again, FullGaussians)
    np.testing.assert_array_equal(again.mean, moved.mean)
    np.testing.assert_array_equal(again.scale_tril, moved.scale_tril)  # type: ignore[attr-defined]
    np.testing.assert_allclose(again.inverse_tril, moved.inverse_tril, rtol=1e-5)  # type: ignore[attr-defined]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=25)
@given(metadata=st.dictionaries(st.text(), json_values, max_size=4))
def test_metadata_round_trip(tmp_path_factory: pytest.TempPathFactory, metadata: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("metadata") / "q"
    mixture("diagonal").save(path, metadata)
    assert load_metadata(path) == metadata


def test_metadata_is_optional_and_lies_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "q"
    mixture().save(path)
    assert load_metadata(str(path)) == {}
    mixture().save(path, {"elbo": -1.5, "target": "банан"})  # replaces the file
    with safe_open(path, framework="numpy") as file:
        header = file.metadata()
        assert sorted(file.keys()) == ["log_weights", "mean", "scale_tril"]
    assert header["format"] == MIXTURE.name
    assert json.loads(header["metadata"]) == {"elbo": -1.5, "target": "банан"}


def test_float64_needs_x64(tmp_path: Path) -> None:
    path = tmp_path / "q"
    q = mixture()
    q.save(path)
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=r"jax_enable_x64.*dtype='float32'"):
            Mixture.load(path)
        with pytest.raises(ValueError, match="jax_enable_x64"):
            Mixture.load(path, jnp.float64)
        lowered = Mixture.load(path, dtype="float32")
    assert lowered.dtype == jnp.float32
    np.testing.assert_array_equal(lowered.means, np.asarray(q.means, np.float32))


def test_loading_in_another_type(tmp_path: Path) -> None:
    path = tmp_path / "q"
    q = mixture(dtype=np.float32)
    q.save(path)
    raised = Mixture.load(path, dtype=np.float64)
    assert eqx.tree_equal(raised, q.astype(np.float64))
    with pytest.raises(ValueError, match="float32 or float64, not in int32"):
        Mixture.load(path, dtype=np.int32)


# Bad files and arguments ----------------------------------------------------------------------------


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for read in (Mixture.load, load_metadata):
        with pytest.raises(FileNotFoundError, match="There is no file"):
            read(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="does not exist; create it"):
        mixture().save(tmp_path / "nowhere" / "q")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        mixture().save(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something", b"\xff" * 100])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "q"
    path.write_bytes(content)
    for read in (Mixture.load, load_metadata):
        with pytest.raises(ValueError, match="not a safetensors file"):
            read(path)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "q"
    mixture().save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="is damaged"):
        Mixture.load(path)


def test_safetensors_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "q"
    save_file({"a": np.zeros(2)}, path)
    for read in (Mixture.load, load_metadata):
        with pytest.raises(ValueError, match="written by something else"):
            read(path)


@pytest.mark.parametrize("version", ["1", "99"])
def test_other_versions_are_refused(tmp_path: Path, version: str) -> None:
    path = tmp_path / "q"
    save_file({"a": np.zeros(2)}, path, {"format": MIXTURE.name, "version": version})  # without a checksum
    with pytest.raises(ValueError, match=f"format version {version}, this natmix reads version {VERSION}"):
        Mixture.load(path)


def test_equal_mixtures_give_equal_bytes(tmp_path: Path) -> None:
    mixture().save(tmp_path / "a", {"x": 1, "y": [2.5]})
    mixture().save(tmp_path / "b", {"y": [2.5], "x": 1})
    Mixture.load(tmp_path / "a").save(tmp_path / "c", load_metadata(tmp_path / "a"))
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"scale": None}, "is incomplete"),
    "kind": ({"header": {"representation": "full"}}, "is incomplete"),
    "components": ({"mean": np.zeros((2, 2))}, "is damaged"),
    "dimensions": ({"mean": np.zeros((3, 5))}, "is damaged"),
    "axes": ({"scale": np.ones((3, 2, 2))}, "is damaged"),
    "integers": ({"mean": np.zeros((3, 2), np.int32)}, "all float32 or all float64"),
    "sum": ({"log_weights": np.log([1.0, 2.0, 4.39])}, "sum to 7.39, not to one"),
    "triangle": (
        {
            "header": {"representation": "full"},
            "scale": None,
            "scale_tril": np.broadcast_to(np.array([[1.0, 0.5], [0.0, 1.0]]), (3, 2, 2)),
        },
        "above the diagonal",
    ),
    "unknown": ({"other": np.zeros(2)}, "'other' belongs to nothing"),
    "negative": ({"scale": -np.ones((3, 2))}, "without a positive scale"),
    "nan mean": ({"mean": np.full((3, 2), np.nan)}, "NaN or infinite"),
    "scale": ({"scale": np.zeros((3, 2))}, "without a positive scale"),
    "weights": ({"log_weights": np.full(3, -np.inf)}, "not a distribution"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    changes, message = DAMAGED[name]
    with pytest.raises(ValueError, match=message):
        Mixture.load(write(tmp_path / "q", **changes))


@pytest.mark.parametrize("leaf", ["log_weights", "mean", "scale"])
def test_nan_is_not_saved(tmp_path: Path, leaf: str) -> None:
    q = mixture("diagonal")
    where = (lambda q: q.log_weights) if leaf == "log_weights" else lambda q: getattr(q.components, leaf)
    broken = eqx.tree_at(where, q, replace_fn=lambda a: a.at[0].set(jnp.nan))
    with pytest.raises(ValueError, match="The mixture has"):
        broken.save(tmp_path / "q")
    assert not list(tmp_path.iterdir())


def test_metadata_must_be_json(tmp_path: Path) -> None:
    for bad in ({"a": object()}, {"a": np.zeros(2)}, {(1, 2): 3}):
        with pytest.raises(ValueError, match="Metadata must consist of"):
            mixture().save(tmp_path / "q", bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a dictionary, got list"):
        mixture().save(tmp_path / "q", [1])  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
