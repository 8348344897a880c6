"""A dozen targets with known log Z."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Target:
    """A log density, its evidence, and what `natmix.fit` is told beside it."""

    log_density: Callable[..., Any]
    dim: int
    log_z: float = 0.0
    data: Any = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def _normal(x: Any, scale: Any = 1.0) -> Any:
    return jnp.sum(-0.5 * (x / scale) ** 2 - jnp.log(scale) - 0.5 * math.log(2 * math.pi))


def _gaussian(x: Any, scale: Any) -> Any:
    return _normal(x, scale)


def _mixture(x: Any, data: Any) -> Any:
    each = jax.vmap(lambda mean: _normal(x - mean, data["scale"]))(data["means"])
    return jax.nn.logsumexp(each + jnp.log(data["weights"]))


def _banana(x: Any) -> Any:
    rest = x.at[1].add(-0.5 * (x[0] ** 2 - 4)).at[0].divide(2.0)
    return _normal(rest) - math.log(2.0)


def _funnel(x: Any) -> Any:
    return _normal(x[0], 2.0) + _normal(x[1:], jnp.exp(x[0] / 2))


def _student(x: Any, freedom: Any) -> Any:
    D = x.shape[0]
    constant = jax.scipy.special.gammaln((freedom + D) / 2) - jax.scipy.special.gammaln(freedom / 2)
    return constant - D / 2 * jnp.log(freedom * jnp.pi) - (freedom + D) / 2 * jnp.log1p(x @ x / freedom)


def _regression(x: Any, data: Any) -> Any:
    return _normal(x) + _normal(data["y"] - data["A"] @ x, 0.5)


def _regression_data(rows: int, dim: int) -> tuple[dict[str, np.ndarray], float]:
    """Linear regression with a known evidence."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(rows, dim))
    y = A @ rng.normal(size=dim) + 0.5 * rng.normal(size=rows)
    covariance = 0.25 * np.eye(rows) + A @ A.T
    _, log_det = np.linalg.slogdet(covariance)
    log_z = -0.5 * (y @ np.linalg.solve(covariance, y) + log_det + rows * math.log(2 * math.pi))
    return {"A": A, "y": y}, float(log_z)


def _modes(number: int, dim: int, distance: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    means = rng.normal(size=(number, dim))
    means *= distance / np.linalg.norm(means, axis=1, keepdims=True)
    weights = np.arange(1, number + 1) / (number * (number + 1) / 2)
    return {"means": means, "weights": weights, "scale": np.ones(dim)}


def _on_the_host(x: np.ndarray) -> float:
    z = np.asarray([float(v) for v in x])
    return float(-0.5 * np.sum(z**2) - len(z) / 2 * math.log(2 * math.pi))


def _all() -> dict[str, Target]:
    regression, log_z = _regression_data(40, 8)
    wide = np.geomspace(0.01, 100, 10)
    return {
        "gaussian10": Target(_gaussian, 10, data=wide, options={"start": "pathfinder"}),
        "gaussian30": Target(_gaussian, 30, data=np.ones(30)),
        "regression8": Target(_regression, 8, log_z, regression),
        "two_modes4": Target(_mixture, 4, data=_modes(2, 4, 5.0), options={"init_scale": 4.0}),
        "five_modes2": Target(_mixture, 2, data=_modes(5, 2, 6.0), options={"init_scale": 5.0}),
        "three_modes8": Target(_mixture, 8, data=_modes(3, 8, 5.0), options={"init_scale": 3.0}),
        "banana2": Target(_banana, 2),
        "banana6": Target(_banana, 6),
        "funnel3": Target(_funnel, 3),
        "funnel6": Target(_funnel, 6),
        "student4": Target(_student, 4, data=5.0),
        "host2": Target(_on_the_host, 2),
    }


TARGETS = _all()
