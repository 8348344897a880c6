"""Which form of an operation a plan chooses, by device, size and covariance family."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_mixture
from plans import GPU, NATIVE, XLA

from natmix.kernels import (
    background_density,
    log_densities,
    more_regressions,
    scores,
    stein_sums,
    trust_region,
)
from natmix.kernels.plan import Plan


def test_several_devices_divide_the_components_of_the_native_trust_region() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("components",))
    plan = dataclasses.replace(NATIVE, mesh=mesh)
    assert trust_region.choose(plan, big(4, 8)) == "native_shards"
    assert trust_region.choose(plan, big(4, 50, diagonal=True)) == "eigen"
    assert log_densities.choose_reorder(plan) == "recompute"
    assert scores.choose(plan, big(4, 8), 1000) == "quadratic"


def big(K: int, D: int, diagonal: bool = False) -> Any:
    """Gaussians of this size; their numbers are never read."""
    return random_mixture(0, K, D, diagonal=diagonal).components


@pytest.mark.parametrize(
    ("plan", "K", "D", "N", "densities", "sums", "more", "step"),
    [
        (NATIVE, 4, 8, 63, "quadratic", "fused_quadratic", "sparse", "native"),
        (NATIVE, 4, 8, 64, "native", "native", "native", "native"),
        (NATIVE, 2, 50, 64, "native", "native", "sparse", "native"),
        (XLA, 4, 8, 1000, "quadratic", "fused_quadratic", "sparse", "eigen"),
        (XLA, 8, 16, 1000, "quadratic", "sparse", "sparse", "eigen"),
        (XLA, 9, 40, 1000, "quadratic", "fused_quadratic", "sparse", "cholesky"),
        (XLA, 9, 41, 1000, "whitened", "sparse", "sparse", "cholesky"),
        (XLA, 1, 41, 1000, "whitened", "fused_whitened", "dense", "cholesky"),
        (GPU, 9, 32, 1000, "circular", "circular", "dense", "eigen"),
        (GPU, 2, 65, 1000, "stacked", "stacked", "dense", "cholesky"),
        (GPU, 2, 65, 10**8, "stacked", "sparse", "sparse", "cholesky"),
    ],
)
def test_which_form_is_chosen(
    plan: Plan, K: int, D: int, N: int, densities: str, sums: str, more: str, step: str
) -> None:
    g = big(K, D)
    assert log_densities.choose(plan, g, N) == densities
    assert scores.choose(plan, g, N) == stein_sums.choose(plan, g, N) == sums
    assert more_regressions.choose(plan, g, N, False) == more
    assert trust_region.choose(plan, g) == step


def test_covariances_of_another_kind_have_their_own_forms() -> None:
    g = big(4, 50, diagonal=True)
    for plan in (NATIVE, XLA, GPU):
        assert log_densities.choose(plan, g, 1000) == "whitened"
        assert scores.choose(plan, g, 1000) == ("fused_whitened" if plan.on_cpu else "whitened")
        assert trust_region.choose(plan, g) == "eigen"
        assert background_density.choose(plan, g, 1000) == "blocks"
    with pytest.raises(TypeError, match="DiagonalGaussians have no triangular factors"):
        log_densities.log_prob(g, jnp.zeros((3, 50)), form="stacked")
