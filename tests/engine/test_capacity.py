"""Slots for components: how many at first, and how they grow."""

import jax
import pytest
from plans import GPU, NATIVE, XLA

from natmix import GMMVI
from natmix.engine.capacity import fewest_slots, grown, initial_capacity
from natmix.kernels.plan import using


@pytest.fixture(params=[NATIVE, XLA, GPU], ids=["native", "xla", "gpu"])
def plan(request):
    with using(request.param):
        yield request.param


@pytest.mark.parametrize("dim", [1, 10, 31, 100, 300])
def test_slots_hold_the_components_and_grow(plan, dim):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"max_components": 1000})
    for components in range(1, 300, 7):
        slots = initial_capacity(algorithm, components, dim)
        assert components <= slots <= max(4 * components + 8, fewest_slots(dim))
    assert all(slots < grown(algorithm, slots, dim) <= 4 * slots for slots in range(1, 600))


def test_slots_that_are_expensive_are_few(plan):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"max_components": 150})
    assert initial_capacity(algorithm, 20, 300) == 24
    with using(GPU):
        assert [grown(algorithm, slots, 300) for slots in (24, 40)] == [32, 56]
        assert grown(algorithm, 32, 20) == 128
        assert grown(algorithm, 256, 31) == 512


def test_on_a_cpu_few_dimensions_have_many_slots_at_first():
    with using(XLA):
        assert [fewest_slots(dim) for dim in (1, 16, 17, 64, 65)] == [32, 32, 8, 8, 4]


@pytest.fixture(params=[NATIVE, XLA], ids=["native", "xla"])
def native(request):
    with using(request.param):
        yield request.param.native


def test_on_a_cpu_empty_slots_are_many_where_they_cost_little(native):
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"max_components": 1000})
    few = [8, 32, 48, 112]
    assert [grown(algorithm, n, 20) for n in few] == ([32, 64, 96, 224] if native else [16, 64, 72, 168])
    assert [grown(algorithm, n, 100) for n in few] == ([32, 64, 72, 168] if native else [16, 64, 72, 168])
    assert [initial_capacity(algorithm, 100, dim) for dim in (10, 100)] == [256 if native else 112, 112]


@pytest.mark.parametrize("why", ["old samples", "several devices", "many pairs"])
def test_where_they_cost_much_there_are_few(native, why):
    reuse = {"reuse_ratio": 1.5 if why == "old samples" else 0.0}
    desired = {"desired_samples": 10**6 if why == "many pairs" else 100}
    most = {"max_components": 1000}
    algorithm = GMMVI.from_codename("samtron", sample_selector=reuse | desired, component_adaptation=most)
    if why == "several devices":
        algorithm = algorithm.on(jax.devices()[:1])
    assert [grown(algorithm, n, 20) for n in (16, 48)] == [32, 72]
    assert initial_capacity(algorithm, 100, 10) == 112
    if why == "old samples":
        assert [initial_capacity(algorithm, 1, dim) for dim in (10, 20, 300)] == [8, 2, 2]
        assert [grown(algorithm, n, 20) for n in (2, 8)] == [8, 32]


def test_a_fixed_number_of_components_has_no_spare_slots(plan):
    fixed = GMMVI.from_codename("sepyfux")
    assert initial_capacity(fixed, 21, 300) == 21
    few = GMMVI.from_codename("samtron", component_adaptation={"max_components": 22})
    assert initial_capacity(few, 20, 300) == 22
