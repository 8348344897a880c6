"""Programs are compiled with the options that the compiler here knows."""

import jax
import jax.numpy as jnp
import pytest

from natmix.kernels import compilation
from natmix.kernels.compilation import compiler_options, parted, quick_array_jit, quick_jit


@pytest.fixture(autouse=True)
def asked_again():
    compiler_options.cache_clear()
    yield
    compiler_options.cache_clear()


def test_less_optimisation_goes_with_simple_loops():
    options = compiler_options("cpu")
    assert "xla_backend_optimization_level" in options
    assert set(options) & {name for name, _ in compilation._SIMPLE_LOOPS}
    assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2


def test_the_first_known_setting_is_taken(monkeypatch):
    known = compilation._SIMPLE_LOOPS
    monkeypatch.setattr(compilation, "_SIMPLE_LOOPS", (("xla_no_such_option", True), *known))
    assert "xla_no_such_option" not in compiler_options("cpu")
    assert len(compiler_options("cpu")) == 2


def test_without_simple_loops_everything_is_optimised(monkeypatch):
    monkeypatch.setattr(compilation, "_SIMPLE_LOOPS", (("xla_no_such_option", True),))
    assert compiler_options("cpu") == {}


def test_a_gpu_does_not_try_kernels_but_for_long_runs(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    fusions, products = "xla_gpu_experimental_enable_fusion_autotuner", "xla_gpu_enable_triton_gemm"
    assert compiler_options("gpu") == {fusions: False, products: False}
    assert compiler_options("gpu", tuned=True) == {}
    assert compiler_options("cpu", tuned=True) == compiler_options("cpu")


def test_the_users_flags_for_a_gpu_are_left_as_they_are(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_experimental_enable_fusion_autotuner=true")
    assert compiler_options("gpu") == {"xla_gpu_enable_triton_gemm": False}


def test_options_of_a_gpu_that_are_not_known_are_left_out(monkeypatch):
    monkeypatch.setattr(compilation, "_GPU_OPTIONS", {"xla_no_such_option": True})
    assert compiler_options("gpu") == {}


def test_other_accelerators_get_none():
    assert compiler_options("tpu") == {}


def test_a_quick_function_donates_and_traces_once():
    traced = []

    @quick_jit(donate="all-except-first")
    def add(a, b):
        traced.append(1)
        return a + b

    b = jnp.ones(4)
    assert jnp.all(add(jnp.ones(4), b) == 2)
    assert b.is_deleted()
    assert jnp.all(add(jnp.ones(4), jnp.zeros(4)) == 1)
    assert len(traced) == 1


def test_a_quick_function_may_be_part_of_another_program():
    @quick_array_jit(static_argnums=(1,))
    def power(x, n):
        return jnp.sum(x**n)

    x = jnp.arange(3.0)
    assert power(x, 2) == jax.jit(lambda x: power(x, 2))(x) == 5
    assert jax.jit(lambda y: y + power(x, 2))(1.0) == 6
    assert jax.lax.scan(lambda y, _: (y + power(x, 2), None), 0.0, length=3)[0] == 15
    assert jax.eval_shape(lambda: power(x, 2)).shape == ()
    assert jnp.all(jax.grad(power)(x, 2) == 2 * x)
    assert jnp.all(jax.vmap(lambda x: power(x, 3))(jnp.stack([x, 2 * x])) == jnp.array([9, 72]))


def test_a_tree_in_two_parts_and_one_again():
    tree = {"f": jnp.sin, "x": jnp.arange(3.0), "n": (None, 2), "s": "text"}
    arrays, rest = parted(tree)
    again = rest.joined(arrays)
    assert jax.tree.structure(again) == jax.tree.structure(tree)  # type: ignore[operator]
    assert again["f"] is jnp.sin
    assert again["n"] == (None, 2)
    assert again["s"] == "text"
    assert again["x"] is tree["x"]


def test_equal_rests_share_a_program_and_others_do_not():
    traced = []

    @quick_array_jit(static_argnums=(0,), donate_argnums=(2,))
    def apply(rest, arrays, state):
        traced.append(1)
        tree = rest.joined(arrays)
        return tree["f"](tree["x"]) + state

    for x, f, programs in ((0.0, jnp.sin, 1), (1.0, jnp.sin, 1), (0.0, jnp.cos, 2)):
        arrays, rest = parted({"f": f, "x": jnp.asarray(x)})
        state = jnp.ones(3)
        assert jnp.allclose(apply.jitted(rest, arrays, state), f(x) + 1)
        assert state.is_deleted()
        assert len(traced) == programs
