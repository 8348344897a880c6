"""A log density with a quartic term, in JAX and in NumPy, of one point and of many."""

import jax.numpy as jnp
import numpy as np

from natmix.targets import as_target

D = 3
CENTRE = np.array([0.5, -1.0, 2.0])
PRECISION = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]])
X = np.random.default_rng(0).normal(size=(37, D))
VALUES = -0.5 * np.einsum("ni,ij,nj->n", X - CENTRE, PRECISION, X - CENTRE) - 0.1 * np.sum(X**4, axis=1)
GRADIENTS = -(X - CENTRE) @ PRECISION - 0.4 * X**3


def jax_point(x):
    return -0.5 * (x - CENTRE) @ jnp.asarray(PRECISION) @ (x - CENTRE) - 0.1 * jnp.sum(x**4)


def numpy_point(x):
    x = np.asarray(x)  # JAX cannot trace this
    return -0.5 * (x - CENTRE) @ PRECISION @ (x - CENTRE) - 0.1 * np.sum(x**4)


def numpy_gradient(x):
    x = np.asarray(x)
    return -PRECISION @ (x - CENTRE) - 0.4 * x**3


def numpy_batch(x):
    d = np.asarray(x) - CENTRE
    return -0.5 * np.einsum("ni,ij,nj->n", d, PRECISION, d) - 0.1 * np.sum(np.asarray(x) ** 4, axis=1)


def numpy_batch_gradient(x):
    return -(np.asarray(x) - CENTRE) @ PRECISION - 0.4 * np.asarray(x) ** 3


def numpy_both(x):
    return numpy_point(x), numpy_gradient(x)


def numpy_batch_both(x):
    return numpy_batch(x), numpy_batch_gradient(x)


def found(fn):
    return as_target(fn, D, jnp.dtype("float64"), np.zeros(D))
