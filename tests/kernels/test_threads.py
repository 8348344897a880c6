"""Linear-algebra libraries use one thread while a compiled program runs, and their own number otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg  # loads the library that XLA calls
from helpers import random_mixture
from plans import GPU
from threadpoolctl import ThreadpoolController

from natmix import GMMVI
from natmix.engine.chunk_runner import ChunkRunner
from natmix.kernels.plan import using
from natmix.kernels.threads import single_threaded_blas
from natmix.targets import HostTarget, JaxTarget


def threads():
    return {lib["num_threads"] for lib in ThreadpoolController().info() if lib["user_api"] == "blas"}


@pytest.fixture
def three():
    assert scipy.linalg
    with ThreadpoolController().limit(limits=3, user_api="blas"):
        yield


def test_one_inside_and_as_many_as_before_afterwards(three):
    with single_threaded_blas():
        assert threads() == {1}
    assert threads() == {3}
    with pytest.raises(KeyError), single_threaded_blas():
        raise KeyError
    assert threads() == {3}


def test_accelerators_are_left_alone(three):
    with using(GPU), single_threaded_blas():
        assert threads() == {3}


def seen(host):
    """The numbers of threads during an evaluation of the target, inside or outside JAX."""
    found = []

    def value(x):
        found.append(threads())
        return np.asarray(-0.5 * np.sum(np.square(x), axis=-1), np.float64)

    def inside(x):
        shape = jax.ShapeDtypeStruct((), jnp.float64)
        return jax.pure_callback(value, shape, x, vmap_method="broadcast_all")

    algorithm = GMMVI.from_codename("zamtron", sample_selector={"desired_samples": 20})
    target = HostTarget(value, 2) if host else JaxTarget(inside, 2)
    ChunkRunner(algorithm, target, 3).advance(algorithm.init(0, random_mixture(0, 2, 2)), 1, None)
    return found


def test_a_program_runs_with_one(three):
    assert seen(False)[-1] == {1}


def test_a_target_outside_jax_keeps_its_threads(three):
    assert seen(True)[-1] == {3}
