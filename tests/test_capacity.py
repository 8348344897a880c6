"""Rows for components: how many at first, and how they grow."""

import jax
import pytest

from natmix import GMMVI, native
from natmix._capacity import fewest_rows, grown, initial_capacity


@pytest.fixture(params=["cpu", "gpu"])
def backend(request, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: request.param)
    return request.param


@pytest.mark.parametrize("dim", [1, 10, 31, 100, 300])
def test_rows_hold_the_components_and_grow(backend, dim):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"max_components": 1000})
    for components in range(1, 300, 7):
        rows = initial_capacity(algorithm, components, dim)
        assert components <= rows <= max(2 * components + 8, fewest_rows(dim))
    assert all(rows < grown(rows, dim) <= 4 * rows for rows in range(1, 600))


def test_rows_that_are_dear_are_few(backend, monkeypatch):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"max_components": 150})
    assert initial_capacity(algorithm, 20, 300) == 24
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [grown(24, 300), grown(40, 300)] == [32, 56]
    assert grown(32, 20) == 128
    assert grown(256, 31) == 512


def test_on_a_cpu_few_dimensions_have_many_rows_to_begin_with(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert [fewest_rows(dim) for dim in (1, 16, 17, 64, 65)] == [32, 32, 8, 8, 4]


def test_on_a_cpu_many_rows_grow_by_half(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert [grown(rows, 20) for rows in (32, 48, 56, 112)] == [64, 72, 88, 168]


@pytest.mark.parametrize(("loops", "then"), [(True, 32), (False, 16)])
def test_few_rows_grow_by_four_where_empty_ones_cost_little(monkeypatch, loops, then):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(native, "used", lambda: loops)
    assert grown(8, 20) == then


def test_a_fixed_number_of_components_has_no_spare_rows(backend):
    fixed = GMMVI.from_codename("sepyfux")
    assert initial_capacity(fixed, 21, 300) == 21
    few = GMMVI.from_codename("samtron", component_adaptation={"max_components": 22})
    assert initial_capacity(few, 20, 300) == 22
