"""Programs are compiled with the options that the compiler here knows."""

import jax
import jax.numpy as jnp

from natmix import _compile
from natmix._compile import compiler_options, quick_jit


def test_unknown_options_are_left_out(monkeypatch):
    wanted = {"xla_backend_optimization_level": 1, "xla_no_such_option": True}
    monkeypatch.setattr(_compile, "_CPU_OPTIONS", wanted)
    compiler_options.cache_clear()
    try:
        assert compiler_options() == {"xla_backend_optimization_level": 1}
    finally:
        compiler_options.cache_clear()


def test_accelerators_get_none(monkeypatch):
    compiler_options.cache_clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    try:
        assert compiler_options() == {}
    finally:
        compiler_options.cache_clear()


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
