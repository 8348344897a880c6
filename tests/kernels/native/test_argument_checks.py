"""Calls straight to the kernels with wrong arrays: an exception with a sentence, and the process goes on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix.kernels import native
from natmix.kernels.native.library import CORE

pytestmark = pytest.mark.skipif(not native.available(), reason="installed without native kernels")

N, K, D = 70, 3, 2
GOOD = {
    "x": jnp.zeros((N, D), jnp.float32),
    "mean": jnp.zeros((K, D), jnp.float32),
    "W": jnp.zeros((K, D, D), jnp.float32),
    "count": jnp.asarray(N, jnp.int32),
    "offset": jnp.zeros(K, jnp.float32),
    "present": jnp.ones(K, bool),
}
RESULT = jax.ShapeDtypeStruct((N, K), jnp.float32)


def straight(kernel: str, arrays: Any, results: Any = RESULT, **options: Any) -> Any:
    """XLA's call, without what Python sees to."""
    return jax.block_until_ready(jax.ffi.ffi_call(f"natmix_{kernel}", results, **options)(*arrays))


def log_prob(results: Any = RESULT, **changes: Any) -> Any:
    return straight("log_prob", (GOOD | changes).values(), results)


def refused(sentence: str) -> Any:
    return pytest.raises(jax.errors.JaxRuntimeError, match=sentence)


def test_the_arrays_of_the_table_are_taken() -> None:
    assert not np.any(log_prob())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x": jnp.zeros((N, D), jnp.int32)}, "x must be of type float32 or float64, got int32"),
        ({"mean": jnp.zeros((K, D), jnp.bfloat16)}, "mean must be of type float32 like the arrays before it"),
        ({"count": jnp.asarray(1.0, jnp.float32)}, "count must be of type int32, got float32"),
        ({"present": jnp.ones(K, jnp.int32)}, "present must be of type bool, got int32"),
        ({"W": jnp.zeros((K, D), jnp.float32)}, r"W must have 3 dimensions \[K, D, D\], got 2"),
        ({"count": jnp.ones(1, jnp.int32)}, r"count must have 0 dimensions \[\], got 1"),
        (
            {"W": jnp.zeros((K, D, D + 1), jnp.float32)},
            r"W must have the shape \[K, D, D\] = \[3, 2, 2\], got \[3, 2, 3\]",
        ),
        ({"offset": jnp.zeros(K - 1, jnp.float32)}, r"offset must have the shape \[K\] = \[3\], got \[2\]"),
    ],
)
def test_wrong_arguments_get_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with refused(f"natmix_log_prob: {sentence}"):
        log_prob(**changes)
    assert not np.any(log_prob())


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            jax.ShapeDtypeStruct((N, K + 1), jnp.float32),
            r"log_density must have the shape \[N, K\] = \[70, 3\]",
        ),
        (jax.ShapeDtypeStruct((N,), jnp.float32), "log_density must have 2 dimensions"),
        (jax.ShapeDtypeStruct((N, K), jnp.int32), "log_density must be of type float32"),
        ((RESULT, RESULT), "takes 1 results, got 2"),
    ],
)
def test_wrong_results_get_a_sentence(result: Any, sentence: str) -> None:
    with refused(sentence):
        log_prob(result)


def test_too_few_arguments_get_a_sentence() -> None:
    with refused("natmix_log_prob takes 6 arguments, got 5"):
        straight("log_prob", list(GOOD.values())[:5])
    with refused("natmix_stein_sums takes 11 arguments, got 6"):
        straight("stein_sums", GOOD.values())


def test_every_kernel_refuses_every_argument_of_another_rank_and_type() -> None:
    """Whatever its table says: a number that is not there is never read."""
    letters = dict.fromkeys("NKDCPFHS", 3)
    for name, signature in CORE.kernels.items():
        common = {"T": jnp.float32, "ANY": jnp.float32}
        declared = (*signature.arguments, *signature.results)
        zeros = [jnp.zeros(d.shape(letters, ()), d.dtype(common)) for d in declared]
        arguments, results = zeros[: len(signature.arguments)], zeros[len(signature.arguments) :]
        shapes = tuple(jax.ShapeDtypeStruct(r.shape, r.dtype) for r in results)
        for i, wrong in enumerate(arguments):
            for instead in (wrong[None], wrong.astype(jnp.complex64)):
                with refused(f"natmix_{name}"):
                    straight(name, [*arguments[:i], instead, *arguments[i + 1 :]], shapes)


def test_batches_of_different_sizes_get_a_sentence() -> None:
    batch = {name: jnp.stack([a] * 4) for name, a in GOOD.items()} | {"W": jnp.stack([GOOD["W"]] * 3)}
    with refused("natmix_log_prob: W has a batch of 3, the first result one of 4"):
        straight("log_prob", batch.values(), jax.ShapeDtypeStruct((4, N, K), jnp.float32))


def test_values_that_would_reach_beyond_an_array() -> None:
    buffer, items, chosen = jnp.zeros((5, 2)), jnp.ones((3, 2)), jnp.ones(3, bool)
    for start in (-1, 5, 2**31 - 1):
        with refused(f"start must be one of the 5 slots of the buffer, got {start}"):
            arrays = {"buffer": buffer, "items": items, "chosen": chosen, "start": jnp.asarray(start)}
            jax.block_until_ready(CORE.call("ring_buffer_write", arrays))
    with refused("3 Gaussians are not 2 generations of the same size"):
        g = jnp.ones(K)
        arrays = (GOOD["x"], GOOD["mean"], GOOD["W"], g, g, g, jnp.zeros(N), 2, None)  # type: ignore[assignment]
        jax.block_until_ready(native.background_log_density(*arrays))  # type: ignore[arg-type]
    near = jnp.asarray([-(2**31), 2**31 - 1] * (N // 2))
    g = jnp.zeros(K)
    native.relevant_log_prob(
        GOOD["x"], GOOD["mean"], GOOD["W"], g, g, g, near, jnp.zeros(N), jnp.asarray(10**9)
    )
    keys, mean = jnp.zeros((K, 2), jnp.uint32), GOOD["mean"]
    number = jnp.asarray([2**31 - 1, -(2**31), 5])
    x, source = native.draws(keys, number, mean, jnp.zeros((K, D, D), jnp.float32), 20)
    assert x.shape == (20, D)
    assert not np.any(source)


def test_python_passes_arrays_by_the_names_of_the_table() -> None:
    with pytest.raises(
        TypeError, match="kernel log_prob takes x, mean, W, count, offset, present, got x, mean"
    ):
        CORE.call("log_prob", {"x": GOOD["x"], "mean": GOOD["mean"]})
    with pytest.raises(RuntimeError, match=r"libnatmix.so has no kernel log_probs, only log_prob, "):
        CORE.call("log_probs", GOOD)
