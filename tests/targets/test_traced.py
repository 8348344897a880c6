"""A function's program is told apart from its data."""

import functools
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix.targets.detection import as_target
from natmix.targets.function_of_data import FunctionOfData
from natmix.targets.traced import TracedFunction, with_data_apart


def same_structure(one: Any, two: Any) -> bool:
    structures: list[Any] = [jax.tree.structure(one), jax.tree.structure(two)]
    return bool(structures[0] == structures[1])


def found_function(fn: Any, dim: int = 2) -> Any:
    target: Any = as_target(fn, dim, jnp.float64, np.zeros(dim)).target
    return target.fn


POINT = jax.ShapeDtypeStruct((2,), jnp.float64)
X = jnp.array([0.3, -0.7])


def quadratic(x, data):
    return -0.5 * jnp.sum((data - x[0]) ** 2 + jax.nn.softplus(x[1] * data))


def closure(data):
    return lambda x: quadratic(x, data)


def jitted(data):
    return jax.jit(lambda x: quadratic(x, data))


def nested(data):
    inner = jax.jit(lambda x: quadratic(x, data))
    return lambda x: jax.jit(lambda x: 2 * inner(x) + jnp.sum(jnp.asarray(data)))(x)


def scanned(data):
    def f(x):
        return jax.lax.scan(lambda carry, d: (carry + quadratic(x, d), None), 0.0, jnp.asarray(data))[0]

    return f


def with_function_of_data(data):
    return FunctionOfData(quadratic, data)


def partial(data):
    return functools.partial(quadratic, data=data)


KINDS = [closure, jitted, nested, scanned, with_function_of_data, partial]


@pytest.mark.parametrize("make", KINDS)
def test_functions_of_other_data_are_one_program_with_their_own_values(make):
    one, two = (with_data_apart(make(np.arange(3) + shift), POINT) for shift in (0.5, 2.0))
    assert one.program == two.program
    assert hash(one.program) == hash(two.program)
    assert same_structure(one, two)
    value_and_grad = jax.jit(lambda f, x: jax.value_and_grad(f)(x))
    for shift, found in ((0.5, one), (2.0, two)):
        value, gradient = value_and_grad(found, X)
        wanted, slope = jax.value_and_grad(make(np.arange(3) + shift))(X)
        np.testing.assert_allclose(value, wanted, rtol=1e-12)
        np.testing.assert_allclose(gradient, slope, rtol=1e-12)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda x: jnp.sum(x), lambda x: jnp.sum(x) + 1e-9),
        (lambda x: jnp.sum(x**2), lambda x: jnp.sum(x**3)),
        (lambda x: (x[0], x), lambda x: [x[0], x]),
        (closure(np.ones(3)), closure(np.ones(4))),
        (closure(np.ones(3)), closure(np.ones(3, np.float32))),
        (scanned(np.ones(3)), scanned(np.ones(2))),
    ],
)
def test_other_operations_are_another_program(one, two):
    assert with_data_apart(one, POINT).program != with_data_apart(two, POINT).program


def test_what_its_operations_do_not_show_is_not_told_apart():
    """Derivative rules and callbacks of the user's may refer to data; JAX's own rules do not."""

    @jax.custom_jvp
    def ruled(x):
        return jnp.sum(x)

    ruled.defjvp(lambda x, dx: (ruled(*x), jnp.sum(*dx)))

    @jax.custom_vjp
    def backward(x):
        return jnp.sum(x)

    backward.defvjp(lambda x: (jnp.sum(x), None), lambda _, g: (g * jnp.ones(2),))

    def callback(x):
        return jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), x.dtype), x)

    for opaque in (ruled, backward, callback, jax.jit(ruled)):
        assert with_data_apart(opaque, POINT) is None
        assert not isinstance(found_function(opaque), TracedFunction)


def test_pickle_brings_its_own_data():
    found = with_data_apart(functools.partial(quadratic, data=np.array([5.0, 6.0])), POINT)
    again = pickle.loads(pickle.dumps(found))
    assert again.program == found.program
    np.testing.assert_array_equal(again(X), found(X))


def of_data(f, data):
    return as_target(FunctionOfData(f, data), 2, jnp.float64, np.zeros(2)).target


def test_real_numbers_among_the_data_are_data_too():
    def f(x, data):
        return -jnp.sum(x**2) / data["width"]

    one, two = (of_data(f, {"width": width}) for width in (1.0, 4.0))
    assert same_structure(one, two)
    assert one.fn(X) == 4 * two.fn(X)


def test_numbers_that_decide_what_a_function_does_are_constants():
    def f(x, data):
        return -jnp.sum(x**2) if data["width"] > 2 else -jnp.sum(x**4)

    one, two = (of_data(f, {"width": width}) for width in (1.0, 4.0))
    np.testing.assert_allclose([one.fn(X), two.fn(X)], [-jnp.sum(X**4), -jnp.sum(X**2)])


def test_a_batched_function_of_data_has_its_arrays_as_leaves():
    def f(x, data):
        return -jnp.sum((x[:, None] - data["x"][None, :, None]) ** 2, axis=(1, 2)) * data["scale"]

    def target(shift):
        data = {"x": np.arange(3) + shift, "scale": 1 + shift}
        return as_target(FunctionOfData(f, data), 2, jnp.float64, np.zeros(2)).target

    one, two = target(0.0), target(1.0)
    assert one.batched
    assert same_structure(one, two)
    x = np.ones((5, 2))
    np.testing.assert_allclose(one.fn(x), f(x, {"x": np.arange(3.0), "scale": 1.0}))
    np.testing.assert_allclose(two.fn(x), f(x, {"x": np.arange(3) + 1.0, "scale": 2.0}))


def test_a_function_without_room_for_data_is_refused():
    with pytest.raises(ValueError, match=r"called as f\(x, data\), but it takes \(x\)"):
        FunctionOfData(lambda x: 0.0, 1)
