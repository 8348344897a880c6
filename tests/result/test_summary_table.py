"""Which of a model's variables a summary shows, and by which names."""

import numpy as np
import pytest

from natmix.models.base import ModelFile
from natmix.models.saved import SavedModel
from natmix.models.stan_backends.names import flat_name
from natmix.result.summary_table import Variable, table


def variable(name, size):
    labels = [f"{name}[{i}]" for i in range(size)] if size else [name]
    samples = np.random.default_rng(0).normal(3.0, 2.0, size=(500, max(size, 1)))
    return Variable(name, labels, samples)


def test_long_arrays_leave_room_for_others():
    lines = table([variable("a", 0), variable("mu", 18), variable("sigma", 0)])
    first = [line.split()[0] for line in lines]
    assert first == ["variable", "a", *(f"mu[{i}]" for i in range(8)), "…", "sigma"]
    assert lines[-2] == "  … and 10 more entries of mu"
    mean, sd, low, high = map(float, lines[-1].split()[1:])
    column = variable("sigma", 0).samples[:, 0]
    assert (mean, sd) == pytest.approx((column.mean(), column.std()), rel=1e-2)
    assert (low, high) == pytest.approx(np.quantile(column, [0.05, 0.95]), rel=1e-2)


@pytest.mark.parametrize(
    ("sizes", "shown"), [([8, 8, 0, 0], 18), ([9], 9), ([40] * 6, 6 * 2 + 6), ([0] * 20, 20)]
)
def test_rows(sizes, shown):
    lines = table([variable(f"v{i}", size) for i, size in enumerate(sizes)])
    assert len(lines) == 1 + shown


def test_what_has_no_room_is_counted():
    lines = table([variable(f"v{i}", 0) for i in range(33)])
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == "  … and 13 more variables: result.to_pandas() has them all"


def saved(kind, dims, coords, first_index=0):
    header = {"kind": kind, "coordinates": (), "names": [], "structure": None, "latent": (), "observed": ()}
    header |= {"dims": dims, "coords": coords, "first_index": first_index}
    return SavedModel(ModelFile(header, {"variables": [], "observed": []}), np.zeros((0, 0)))


def test_entries_go_by_the_labels_of_their_axes():
    model = saved("PymcModel", {"effect": ("school", "time"), "twice": ("same",)}, {"school": ["a", "b"]})
    assert model.labels("effect", (2, 2)) == ["effect[a,0]", "effect[a,1]", "effect[b,0]", "effect[b,1]"]
    assert model.labels("mu", ()) == ["mu"]
    model.coords["same"] = ["x", "x"]
    assert model.labels("twice", (2,)) == ["twice[0]", "twice[1]"]
    assert saved("StanModel", {}, {}, first_index=1).labels("wave", (2,)) == ["wave[1]", "wave[2]"]
    assert str(flat_name("A.2.1")) == "A[2,1]"
