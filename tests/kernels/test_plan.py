"""The plan: of which device, and that programs of different plans are not mixed."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from plans import DESKTOP_GPU, GPU, NATIVE, XLA

from natmix import GMMVI, Mixture
from natmix.kernels import native
from natmix.kernels.compilation import quick_array_jit
from natmix.kernels.plan import Plan, current, using
from natmix.kernels.sharding import as_mesh


class Device:
    """With what jax says of an accelerator."""

    platform = "gpu"

    def __init__(self, compute_capability: str | None, bytes_limit: int | None = None) -> None:
        if compute_capability:
            self.compute_capability = compute_capability
        self.stats = None if bytes_limit is None else {"bytes_limit": bytes_limit}

    def memory_stats(self) -> dict[str, int] | None:
        return self.stats


@pytest.mark.parametrize(
    ("capability", "fast"),
    [
        ("9.0", True),
        ("10.0", True),
        ("8.9", False),
        ("10.3", False),
        ("12.0", False),
        ("gfx942", True),
        ("gfx90c", False),
        ("gfx1100", False),
        (None, False),
    ],
)
def test_float64_only_where_it_is_fast(capability: str | None, fast: bool) -> None:
    plan = Plan.detect(Device(capability))
    assert plan.fast_float64 is fast
    assert plan.platform == "gpu"
    assert not plan.native


def test_memory_bounds_what_is_done_at_once() -> None:
    assert Plan.detect(Device("9.0", 2**36)).by_memory(2**8, 2**25, 2**30) == 2**28
    assert Plan.detect(Device("9.0")).by_memory(2**8, 2**25, 2**30) == 2**25
    assert Plan.detect(Device("9.0", 2**50)).by_memory(2**8, 2**25, 2**30) == 2**30
    sixteen = dataclasses.replace(Plan.detect(Device("9.0", 2**40)), together=16)
    assert sixteen.by_memory(2**8, 2**25, 2**30) == 2**28


def test_of_this_machine() -> None:
    plan = Plan.of(jnp.zeros(3))
    assert plan == Plan.detect() == Plan.detect(jax.devices("cpu")[0]) == current()
    assert plan.on_cpu
    assert plan.fast_float64
    assert plan.native == native.available()
    assert hash(plan) == hash(Plan.detect())


@pytest.mark.parametrize(("value", "wanted"), [("0", False), ("1", True), ("plain", True), ("widest", True)])
def test_the_environment_turns_native_kernels_off(
    value: str, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATMIX_NATIVE", value)
    assert Plan.detect().native == (wanted and native.available())


def test_an_unknown_setting_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATMIX_NATIVE", "off")
    with pytest.raises(ValueError, match="must be one of 0, 1, plain, wide, widest, got 'off'"):
        Plan.detect()


def test_native_kernels_do_what_one_device_does() -> None:
    mesh = as_mesh(jax.devices()[:1])
    plan = NATIVE.alone()
    assert plan is NATIVE
    assert plan.on(None) is NATIVE
    divided = plan.on(mesh)
    assert divided.mesh == mesh
    assert not divided.native
    assert divided.native_kernels == native.available()
    assert divided.alone().mesh is None


def test_plans_may_be_nested_and_end() -> None:
    before = current()
    with using(GPU):
        with using(DESKTOP_GPU):
            assert current() == DESKTOP_GPU
        assert current() == GPU
        with using(before):
            assert current() == before
        assert Plan.of(jnp.zeros(2)) == GPU  # the plan in use decides
        with pytest.raises(KeyError), using(XLA):
            raise KeyError
        assert current() == GPU
    assert current() == before


@pytest.mark.parametrize("compiled", [jax.jit, quick_array_jit()], ids=["jit", "quick"])
def test_programs_of_different_plans_are_not_mixed(compiled) -> None:
    @compiled
    def two_if_native(x):
        return x + (2 if current().native else 1)

    outer = jax.jit(lambda x: two_if_native(x))
    for function in (two_if_native, outer):
        for plan, wanted in ((XLA, 2), (NATIVE, 3), (XLA, 2), (NATIVE, 3)):
            with using(plan):
                assert function(jnp.ones(())) == wanted


def test_a_mixture_uses_the_plan_of_its_device() -> None:
    mixture = Mixture.full([1.0, 1.0], [[0.0], [1.0]], [[[1.0]], [[2.0]]])
    x = jnp.zeros((100, 1))
    with using(XLA):
        xla = str(jax.make_jaxpr(mixture.log_prob)(x))
    with using(NATIVE):
        found = str(jax.make_jaxpr(mixture.log_prob)(x)) if native.available() else "natmix_mixture_log_prob"
    assert "natmix_mixture_log_prob" not in xla
    assert "natmix_mixture_log_prob" in found


def test_an_algorithm_has_the_plan_of_its_mesh() -> None:
    algorithm = GMMVI.from_codename("samtron")
    assert algorithm.plan() == current()
    mesh = as_mesh(jax.devices()[:1])
    with using(XLA):
        assert algorithm.plan() == XLA
        assert algorithm.on(mesh).plan().mesh == mesh
    with using(Plan.detect(mesh=mesh)):
        assert algorithm.plan().mesh is None
