"""Files with nonsense in them and a checksum that fits: what is checked of the content."""

import json

import jax
import numpy as np
import pytest
from every_file import every_file, mixture
from mutations import header_of

import natmix
from natmix import Mixture, Result
from natmix.files.arrays import parsed_arrays, sealed_arrays
from natmix.files.seal import FORMATS

jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return every_file(tmp_path_factory.mktemp("files"))


def resealed(path, content, change):
    """The file with what ``change`` does to its arrays and metadata."""
    kind = FORMATS[header_of(content)[0]["__metadata__"]["format"]]
    metadata, arrays, _ = parsed_arrays(path, kind, memoryview(bytearray(content)))
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(metadata, arrays)
    path.write_bytes(b"".join(sealed_arrays(kind, arrays, metadata)[0]))
    return path


def nonsense(rng, metadata, arrays):
    """One thing that makes no sense, or makes another sense."""
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    if metadata and rng.random() < 0.3:
        _other_text(rng, metadata)
    elif rng.random() < 0.2:
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        choices = (
            array.reshape(-1)[:-1],
            np.append(array, array),
            array[None],
            half,
            np.zeros(array.shape, int),
        )
        arrays[name] = choices[rng.integers(len(choices))] if array.ndim else array[None]
    elif rng.random() < 0.1:
        arrays[f"{name}x"] = arrays.pop(name)
    elif array.size:
        values = (np.nan, np.inf, -np.inf, -1.0, 0.0, 7.39, 1e300)
        place = np.unravel_index(rng.integers(array.size), array.shape)
        with np.errstate(all="ignore"):
            array[place] = np.array(values[rng.integers(len(values))]).astype(array.dtype)


def _other_text(rng, metadata):
    name = rng.choice(sorted(metadata))
    if rng.random() < 0.2:
        del metadata[name]
        return
    try:
        value = json.loads(metadata[name])
    except ValueError:
        metadata[name] += "x"
        return
    metadata[name] = json.dumps(_changed(rng, value))


def _changed(rng, value):
    """A JSON value with one entry, at any depth, replaced, left out or added."""
    if rng.random() < 0.15 or not isinstance(value, (dict, list)) or not value:
        others: tuple = (None, -1, 1e308, "text", [], {}, [None], {"x": 1}, True, 2**70)
        return others[rng.integers(len(others))]
    if isinstance(value, list):
        i = rng.integers(len(value))
        return [*value[:i], _changed(rng, value[i]), *value[i + 1 :]]
    name = rng.choice(sorted(value))
    if rng.random() < 0.2:
        return {k: v for k, v in value.items() if k != name}
    return {**value, name: _changed(rng, value[name])}


def assert_mixture(q: Mixture):
    assert float(q.weights.sum()) == pytest.approx(1, abs=2e-3)
    for a in jax.tree.leaves(q.components):
        assert np.all(np.isfinite(a))
    scale = np.asarray(q.components.cholesky())
    assert np.all(np.diagonal(scale, axis1=1, axis2=2) > 0)
    assert not np.any(np.triu(scale, 1))


def assert_sound(kind, found):
    """What holds of everything that is read."""
    if "mixture" in kind:
        assert_mixture(found[0])
    elif kind == "result":
        (q, start, elbo, counts, timings, _), trajectory, draws, coordinates = found
        assert_mixture(q)
        assert_mixture(start)
        assert start.dim == q.dim == len(coordinates) == draws["x"].shape[1]
        assert len(draws["x"]) == len(draws["log_target"]) == len(draws["log_mixture"])
        assert len({len(values) for values in trajectory.values()}) == 1
        assert isinstance(elbo.value, float)
        assert min(counts.iterations, counts.added, timings.total) >= 0
    elif kind == "checkpoint":
        _, progress, trace, weights, rows = found
        assert {len(values) for values in trace.values()} <= {progress["iterations"]}
        assert all(row["iterations"] <= progress["iterations"] for row in rows)
        assert_weights(weights)
    elif kind == "fit checkpoint":
        _, begun, records = found
        assert_mixture(begun.first.mixture)
        assert_mixture(records.best)
        numbers = records.numbers["progress"]
        assert {len(values) for values in records.trajectory.values()} <= {numbers["iterations"]}
        assert min(numbers["evaluations"], numbers["seconds"], begun.probes) >= 0
    elif kind == "weights":
        assert_weights(found)
    else:
        assert len({len(values) for values in found[0].values()}) <= 1


def assert_weights(arrays):
    for a, b in zip(arrays["offsets"], arrays["offsets"][1:], strict=False):
        assert arrays["weights"][a:b].sum() == pytest.approx(1, abs=2e-3)


def check(kind, files, tmp_path, count):
    rng = np.random.default_rng(5)
    path, refused = tmp_path / "some_file", 0
    for _ in range(count):
        resealed(path, files[kind].content, lambda metadata, arrays: nonsense(rng, metadata, arrays))
        try:
            found = files[kind].read(path)
        except ValueError as error:
            message = str(error)
        else:
            assert_sound(kind, found)
            continue
        assert "some_file" in message
        refused += 1
    return refused


KINDS = ("mixture", "diagonal mixture", "result", "checkpoint", "fit checkpoint", "trace", "weights")


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_refused(kind, files, tmp_path):
    assert check(kind, files, tmp_path, 40) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_refused_two_thousand_times(kind, files, tmp_path):
    print(f"\n{kind}: {check(kind, files, tmp_path, 2000)} of 2000 refused")


def test_log_densities_may_be_minus_infinity(files, tmp_path):
    def change(metadata, arrays):
        arrays["draws.log_target"][:3] = -np.inf

    path = resealed(tmp_path / "fit", files["result"].content, change)
    assert np.sum(np.isneginf(Result.load(path).draws.log_target)) == 3


def test_equal_results_give_equal_bytes(files, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(files["result"].content)
    Result.load(path).save(tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == files["result"].content


@pytest.mark.parametrize("change", ["not normalised", "upper triangle"])
def test_nonsense_is_not_saved(change, tmp_path):
    q = mixture()
    if change == "not normalised":
        q = Mixture(q.log_weights + 2.0, q.components)
        words = "weights that sum to 7.389"
    else:
        g = q.components
        q = Mixture(q.log_weights, type(g)(g.mean, g.scale_tril + 1.0, g.inverse_tril))  # type: ignore[attr-defined,call-arg]
        words = "above the diagonal"
    with pytest.raises(ValueError, match=words):
        q.save(tmp_path / "q")
    assert not list(tmp_path.iterdir())


def test_a_result_names_the_entry_that_is_wrong(files, tmp_path):
    def change(metadata, arrays):
        header = json.loads(metadata["result"])
        header["counts"]["iterations"] = "three"
        metadata["result"] = json.dumps(header)

    path = resealed(tmp_path / "fit", files["result"].content, change)
    with pytest.raises(
        ValueError, match=r"fit is damaged: counts\.iterations must be a whole number, not 'three'"
    ):
        natmix.Result.load(path)
