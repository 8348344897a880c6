"""A target given in any form means the same density, and is called exactly as often as it says."""

import dataclasses
import functools
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quartic_target import (
    CENTRE,
    GRADIENTS,
    PRECISION,
    VALUES,
    D,
    X,
    found,
    jax_point,
    numpy_batch,
    numpy_batch_both,
    numpy_batch_gradient,
    numpy_both,
    numpy_gradient,
    numpy_point,
)

import natmix
from natmix import HostTarget, JaxTarget, TargetError

pytestmark = pytest.mark.usefixtures("quick_compilation")


class Module(eqx.Module):
    centre: jax.Array

    def __call__(self, x):
        return -0.5 * (x - self.centre) @ jnp.asarray(PRECISION) @ (x - self.centre) - 0.1 * jnp.sum(x**4)

    def method(self, x):
        return self(x)


class Plain:
    def method(self, x):
        return jax_point(x)

    def host(self, x):
        return numpy_point(x)


@dataclasses.dataclass
class Unhashable:
    scale: float

    def __call__(self, x):
        return self.scale * jax_point(x)


class NoSignature:
    """Like a function of a C extension: its arguments are unknown."""

    __signature__ = "none"

    def __call__(self, x):
        return numpy_point(x)


def with_data(data, x):
    return jax_point(x) + 0 * jnp.sum(data)


INSIDE = {
    "point": jax_point,
    "jitted": jax.jit(jax_point),
    "lambda": lambda x: jax_point(x),
    "value and gradient": jax.value_and_grad(jax_point),
    "batched": lambda x: jax.vmap(jax_point)(x.reshape(-1, D))[: x.shape[0]] if x.ndim == 2 else 1 / 0,
    "batched with gradient": lambda x: jax.vmap(jax.value_and_grad(jax_point))(x),
    "module": Module(jnp.asarray(CENTRE)),
    "method of a module": Module(jnp.asarray(CENTRE)).method,
    "method": Plain().method,
    "partial": functools.partial(with_data, jnp.ones(5)),
    "Partial": jax.tree_util.Partial(with_data, jnp.ones(5)),
    "unhashable": Unhashable(1.0),
    "key unused": lambda key, x: jax_point(x),
    "sequence arithmetic": lambda x: (
        sum(
            -0.5 * (x[i] - CENTRE[i]) * PRECISION[i, j] * (x[j] - CENTRE[j])
            for i in range(D)
            for j in range(D)
        )
        - 0.1 * sum(v**4 for v in x)
    ),
    "JaxTarget": JaxTarget(dim=D, fn=jax.vmap(jax_point), batched=True, batch_size=8),
}
OUTSIDE = {
    "point": numpy_point,
    "list of floats": lambda x: [float(numpy_point(x))],
    "with gradient": numpy_both,
    "batched": numpy_batch,
    "batched with gradient": numpy_batch_both,
    "no signature": NoSignature(),
    "method": Plain().host,
    "partial": functools.partial(lambda data, x: numpy_point(x), np.ones(3)),
    "own gradient": HostTarget(dim=D, fn=numpy_point, gradient=numpy_gradient),
    "batched, own gradient": HostTarget(
        dim=D, fn=numpy_batch, batched=True, gradient=numpy_batch_gradient, batch_size=10
    ),
}


def check(target, needs_gradient):
    padded = jnp.concatenate([jnp.asarray(X), jnp.full((5, D), jnp.nan)])
    out = target.evaluate(jax.random.key(0), padded, len(X), needs_gradient)
    np.testing.assert_allclose(out.log_density[: len(X)], VALUES, rtol=1e-12)
    if needs_gradient:
        np.testing.assert_allclose(out.gradient[: len(X)], GRADIENTS, rtol=1e-10, atol=1e-12)
    else:
        assert out.gradient is None


@pytest.mark.parametrize("name", INSIDE)
def test_inside_jax(name):
    target, probes, _ = found(INSIDE[name])
    assert target.inside_jax
    assert target.has_gradient
    assert probes == 0
    assert isinstance(target, JaxTarget)
    assert target.batched == name.startswith("batched") or name == "JaxTarget"
    check(target, True)
    check(target, False)


@pytest.mark.parametrize("name", OUTSIDE)
def test_outside_jax(name):
    target, probes, _ = found(OUTSIDE[name])
    assert not target.inside_jax
    assert target.has_gradient == ("gradient" in name)
    assert probes == (0 if isinstance(OUTSIDE[name], HostTarget) else 3 if name.startswith("batched") else 1)
    check(target, target.has_gradient)
    check(target, False)


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
@pytest.mark.parametrize("batch_size", [None, 5, 1000])
def test_executors(pool, batch_size):
    if pool is ProcessPoolExecutor:
        import multiprocessing

        executor = pool(2, mp_context=multiprocessing.get_context("spawn")) if batch_size is None else None
        if executor is None:
            pytest.skip("one pool of processes is enough")
    else:
        executor = pool(2)
    with executor:
        kinds = [
            {"fn": numpy_point, "gradient": numpy_gradient},
            {"fn": numpy_both, "returns_gradient": True},
            {"fn": numpy_batch, "gradient": numpy_batch_gradient, "batched": True},
            {"fn": numpy_batch_both, "returns_gradient": True, "batched": True},
        ]
        for kind in kinds:
            target = HostTarget(dim=D, executor=executor, batch_size=batch_size, **kind)  # type: ignore[arg-type]
            check(target, True)
            check(target, False)


def test_host_function_may_change_its_argument():
    def rude(x):
        value = numpy_point(x)
        x[:] = np.nan
        return value

    check(HostTarget(dim=D, fn=rude, gradient=numpy_gradient), True)


def test_no_points_are_no_call():
    def never(x):
        raise AssertionError

    for kind in ({}, {"batched": True}, {"executor": ThreadPoolExecutor(1)}):
        out = HostTarget(dim=D, fn=never, **kind).evaluate(jax.random.key(0), jnp.zeros((4, D)), 0, False)
        assert out.log_density.shape == (4,)


def test_stochastic_target_gets_a_key_per_point():
    def noisy(key, x):
        return jax_point(x) + jax.random.normal(key)

    target, _, _ = found(noisy)
    same = jnp.zeros((50, D))
    out = target.evaluate(jax.random.key(1), same, 50, True)
    assert len(np.unique(np.asarray(out.log_density))) == 50
    again = target.evaluate(jax.random.key(1), same, 50, True)
    np.testing.assert_array_equal(out.log_density, again.log_density)
    other = target.evaluate(jax.random.key(2), same, 50, True)
    assert not np.any(np.asarray(out.log_density == other.log_density))


def test_stochastic_blocks_get_keys_of_their_own():
    def noisy(key, x):
        assert x.ndim == 2
        return jax.vmap(jax_point)(x) + jax.random.normal(key)

    target, _, _ = found(noisy)
    assert target.batched
    target = dataclasses.replace(target, batch_size=10)
    out = np.asarray(target.evaluate(jax.random.key(1), jnp.zeros((30, D)), 30, True).log_density)
    assert len(np.unique(np.round(out, 12))) == 3


# What is refused --------------------------------------------------------------------------------

REFUSED_INSIDE = {
    "vector": (lambda x: x, "one number per point"),
    "one-element vector": (lambda x: jnp.sum(x)[None], r"take \[0\]"),
    "gradient of a wrong shape": (lambda x: (jnp.sum(x), x[:2]), "one number per point"),
    "three parts": (lambda x: (jnp.sum(x), x, x), "a tuple"),
    "nothing": (lambda x: None, "NoneType"),
    "complex": (lambda x: jnp.sum(x) + 0j, "complex128"),
    "bool": (lambda x: jnp.all(x > 0), "bool"),
    "int": (lambda x: jnp.sum(x > 0), "int"),
}
REFUSED_OUTSIDE = {
    "vector": (lambda x: np.asarray(x), r"log density must have shape \[\]"),
    "text": (lambda x: str(np.asarray(x)), "real numbers"),
    "number as text": (lambda x: f"{np.asarray(x).sum()}", "real numbers"),
    "None": (lambda x: np.asarray(x) is None or None, "NoneType"),
    "complex": (lambda x: np.asarray(x).sum() + 0j, "complex128"),
    "bool": (lambda x: bool(np.asarray(x).sum() > 0), "bool"),
    "gradient too short": (lambda x: (0.0, np.asarray(x)[:2]), r"gradient must have shape \[3\]"),
    "ragged": (lambda x: [[1.0], [1.0, float(np.asarray(x)[0])], []], "real numbers"),
    "raises": (lambda x: 1 / int(np.asarray(x)[0] * 0), "ZeroDivisionError"),
    "two arguments": (lambda x, data: np.asarray(x).sum(), "give data as data="),
    "misspelt": (lambda x: np.nosuch(x), "AttributeError"),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", REFUSED_INSIDE)
def test_refused_inside_jax(name):
    fn, message = REFUSED_INSIDE[name]
    with pytest.raises(TargetError, match=message) as error:
        found(fn)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", REFUSED_OUTSIDE)
def test_refused_outside_jax(name):
    fn, message = REFUSED_OUTSIDE[name]
    with pytest.raises(TargetError, match=message) as error:
        found(fn)
    assert "\n" not in str(error.value)


def test_declared_targets_are_checked_too():
    with pytest.raises(TargetError, match=r"shape \[4\].*it returned shape \[\]"):
        found(JaxTarget(dim=D, fn=jnp.sum, batched=True))
    with pytest.raises(TargetError, match=r"shape \[\] and shape \[3\]"):
        found(JaxTarget(dim=D, fn=jax_point, returns_gradient=True))
    with pytest.raises(TargetError, match="could not be traced"):
        found(JaxTarget(dim=D, fn=numpy_point))
    transposed = HostTarget(dim=D, fn=numpy_batch, gradient=lambda x: numpy_batch_gradient(x).T, batched=True)
    with pytest.raises(TargetError, match=r"gradient must have shape \[37, 3\]"):
        check(transposed, True)
    with pytest.raises(TargetError, match=r"\(log density, gradient\)"):
        check(HostTarget(dim=D, fn=numpy_point, returns_gradient=True), True)


@pytest.mark.parametrize("bad", [0, -1, 2.0, "2", True, None])
def test_dim(bad):
    with pytest.raises(ValueError, match="dim"):
        natmix.fit(jax_point, dim=bad)
    if bad is not None:
        with pytest.raises(ValueError, match="dim"):
            JaxTarget(dim=bad, fn=jax_point)


def test_contradictions():
    with pytest.raises(ValueError, match="has dim=3"):
        natmix.fit(JaxTarget(dim=D, fn=jax_point), dim=2)
    with pytest.raises(ValueError, match="function of a point"):
        natmix.fit(3.0, dim=2)
    with pytest.raises(ValueError, match="function of a point"):
        HostTarget(dim=D, fn=None)
    with pytest.raises(ValueError, match="not both"):
        HostTarget(dim=D, fn=numpy_both, returns_gradient=True, gradient=numpy_gradient)
    for size in (0, -3, 2.5, True):
        with pytest.raises(ValueError, match="batch_size"):
            HostTarget(dim=D, fn=numpy_point, batch_size=size)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="batch_size"):
            JaxTarget(dim=D, fn=jax_point, batch_size=size)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="must be a JAX function"):
        natmix.fit(lambda key, x: np.asarray(x).sum(), dim=2)
