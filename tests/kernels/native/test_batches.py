"""Elements of a `jax.vmap` get from the native kernels what each gets alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix import GMMVI
from natmix.experiments import problems
from natmix.kernels import native
from natmix.kernels.native.library import CORE
from tests.kernels.native.test_native import Case
from tests.kernels.native.test_updates import Case as Steps

pytestmark = pytest.mark.skipif(not native.available(), reason="installed without native kernels")

SIZE = (5, 4, 130)
BATCH = 3


def same_as_alone(fn: Callable[..., Any], *arguments: list[Any] | Any) -> None:
    """Lists have an array for each element of the batch; anything else is shared."""
    axes = tuple(0 if isinstance(a, list) else None for a in arguments)
    stacked = [jnp.stack(a) if isinstance(a, list) else a for a in arguments]
    got = jax.jit(jax.vmap(fn, in_axes=axes))(*stacked)
    for element in range(BATCH):
        alone = jax.jit(fn)(*[a[element] if isinstance(a, list) else a for a in arguments])
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(a[element], b)


def cases(dtype: type = np.float32) -> list[Case]:
    """Of the same size, with other numbers."""
    found = [Case(*SIZE, dtype) for _ in range(BATCH)]
    for i, case in enumerate(found):
        case.m, case.x, case.log_c = case.m + i, case.x + 0.9 * i, case.log_c - 0.1 * i * case.m[:, 0]
        case.W, case.L = case.W * (1 + 0.1 * i), case.L / (1 + 0.1 * i)
        case.offset, case.background = case.offset + i, case.background + 0.1 * i
        case.log_weights = np.roll(case.log_weights, i)
    return found


def arrays(name: str, dtype: type = np.float32) -> list[jax.Array]:
    return [jnp.asarray(getattr(case, name), case.type_of(name)) for case in cases(dtype)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_densities_with_arrays_of_their_own_and_shared_ones(dtype: type) -> None:
    x, m, W, offset = (arrays(name, dtype) for name in ("x", "m", "W", "offset"))

    def fn(x: Any, m: Any, W: Any, offset: Any) -> Any:
        return native.log_prob(x, m, W, offset, None, jnp.asarray(100))

    same_as_alone(fn, x, m, W, offset)
    same_as_alone(fn, x, m[0], W[0], offset[0])
    same_as_alone(fn, x[0], m, W[0], offset[0])


def test_numbers_of_samples_of_their_own() -> None:
    x, m, W, offset = (arrays(name) for name in ("x", "m", "W", "offset"))
    counts = [jnp.asarray(n) for n in (0, 130, 77)]
    same_as_alone(lambda x, c: native.log_prob(x, m[0], W[0], offset[0], None, c), x, counts)


SUMS = (
    "mixture_log_prob",
    "relevant_log_prob",
    "background_log_density",
    "score",
    "weighted_scores",
    "weighted_logsumexp",
    "sample_sums",
    "largest_log_weights",
    "weighted_sums",
    "stein_sums",
)
FIXED = ("m", "W", "L", "offset", "log_weights", "valid", "top", "v", "columns")


@pytest.mark.parametrize("name", SUMS)
def test_sums(name: str) -> None:
    fixed = {key: arrays(key)[0] for key in FIXED}
    each = {"x": arrays("x"), "log_c": arrays("log_c"), "background": arrays("background")}

    def fn(x: Any, log_c: Any, background: Any) -> Any:
        m, W, L, offset, log_weights, valid, top, v, columns = fixed.values()
        shares = jnp.exp(log_weights)
        return {
            "mixture_log_prob": lambda: native.mixture_log_prob(x, m, W, offset, log_weights, None),
            "relevant_log_prob": lambda: native.relevant_log_prob(
                x, m, W, offset, log_weights, log_weights, jnp.zeros(x.shape[0], int), background, None
            ),
            "weighted_scores": lambda: native.weighted_scores(
                x, m, W, jnp.exp(log_c - background[:, None]), None
            ),
            "sample_sums": lambda: native.sample_sums(log_c, background, valid, top, shares, None),
            "background_log_density": lambda: native.background_log_density(
                x, m, W, offset, shares, shares, background, 1, None
            ),
            "score": lambda: native.score(x, m, W, log_c, log_weights, None),
            "weighted_logsumexp": lambda: native.weighted_logsumexp(log_c, log_weights, None),
            "largest_log_weights": lambda: native.largest_log_weights(log_c, background, valid, None),
            "weighted_sums": lambda: native.weighted_sums(log_c, background, valid, top, columns, None),
            "stein_sums": lambda: native.stein_sums(
                log_c, background, valid, top, columns, x, m, v, L, W, None
            ),
        }[name]()

    same_as_alone(fn, *each.values())


def test_draws_and_slots() -> None:
    m, L = arrays("m"), arrays("L")[0]
    keys = [jax.random.key_data(jax.random.split(jax.random.key(i), SIZE[0])) for i in range(BATCH)]
    number = [jnp.asarray(n) for n in ([1, 2, 3, 4, 5], [0, 0, 9, 0, 1], [30, 30, 30, 30, 30])]
    same_as_alone(lambda k, n, m: native.draws(k, n, m, L, 100), keys, number, m)
    mask = [jnp.arange(20) % (i + 2) == 0 for i in range(BATCH)]
    same_as_alone(native.nonzero, mask)
    same_as_alone(
        lambda rows, mask: native.masked_bincount(rows, mask, 4), [jnp.arange(20) % 4] * BATCH, mask
    )
    store, rows = jnp.zeros((8, 2)), [jnp.full((20, 2), float(i)) for i in range(BATCH)]
    same_as_alone(native.ring_buffer_write, [store - i for i in range(BATCH)], rows, mask, jnp.asarray(5))
    same_as_alone(native.ring_buffer_write, store, rows, mask, jnp.asarray(5))


def test_what_is_wrong_with_one_element_is_said() -> None:
    buffer, items, chosen = jnp.zeros((8, 2)), jnp.ones((3, 20, 2)), jnp.ones(20, bool)

    def write(items: Any, start: Any) -> Any:
        arrays = {"buffer": buffer, "items": items, "chosen": chosen, "start": start}
        return CORE.call("ring_buffer_write", arrays, vmap_method="broadcast_all")

    with pytest.raises(jax.errors.JaxRuntimeError, match="must be one of the 8 slots of the buffer, got -2"):
        jax.block_until_ready(jax.jit(jax.vmap(write))(items, jnp.asarray([0, -2, 7])))


def test_trust_regions() -> None:
    found = [Steps(4, 7, seed=i) for i in range(BATCH)]
    g = found[0].gaussians

    def fn(A: Any, a: Any, usable: Any) -> Any:
        limits = (found[0].bound, usable, found[0].temperature, 1e30)
        return native.trust_region(A, a, *limits, g.mean, g.scale_tril, g.inverse_tril)

    usable = [jnp.arange(4) != i for i in range(BATCH)]
    same_as_alone(fn, [c.A for c in found], [c.a for c in found], usable)


def test_maps_within_maps() -> None:
    x = jnp.stack([jnp.stack(arrays("x")), jnp.stack(arrays("x")) + 1])
    m, W, offset = (jnp.stack(arrays(name)) for name in ("m", "W", "offset"))

    def fn(x: Any, m: Any, W: Any, offset: Any) -> Any:
        return native.log_prob(x, m, W, offset, None, None)

    inner = jax.vmap(fn, in_axes=(0, 0, 0, None))
    got = jax.vmap(inner, in_axes=(0, None, None, None))(x, m, W, offset[0])
    for i in range(2):
        for j in range(BATCH):
            np.testing.assert_array_equal(got[i, j], fn(x[i, j], m[j], W[j], offset[0]))


def test_an_iteration() -> None:
    """The whole algorithm, a search for a new component in it."""
    problem = problems.load("gmm20", seed=0, dtype=jnp.float64)
    algorithm = GMMVI.from_codename("samtron", component_adaptation={"add_iters": 2})

    def start(seed: Any) -> Any:
        mixture, prior = problem.start.mixture(jax.random.key(seed), 3, jnp.float64)
        return algorithm.init(jax.random.key(seed), mixture, prior, 8)

    def three(state: Any) -> Any:
        def step(_: int, state: Any) -> Any:
            return algorithm.step(state, problem.target)[0]

        return jax.lax.fori_loop(0, 3, step, state).mixture

    states = [start(seed) for seed in range(BATCH)]
    together = jax.jit(jax.vmap(three))(jax.tree.map(lambda *a: jnp.stack(a), *states))
    for i, state in enumerate(states):
        alone = jax.jit(three)(state)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-8, atol=1e-8)
