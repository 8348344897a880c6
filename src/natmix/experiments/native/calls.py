"""The calls, with their shapes. What they return is zero for points beyond ``count``."""

from pathlib import Path

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from natmix.array_types import Count
from natmix.kernels.native.library import NativeLibrary
from natmix.kernels.plan import current

_HERE = Path(__file__).parent
LIBRARY = NativeLibrary(_HERE / "libnatmix_experiments.so", _HERE / "c", "natmix_experiments")


def available() -> bool:
    """Whether natmix was installed with these kernels, and they can be used here."""
    return LIBRARY.available()


def used() -> bool:
    """Whether to call these kernels: only where the native kernels of the core are used too."""
    return current().native and available()


def logistic_regression(
    x: Float[Array, "N D"],
    rows: Float[Array, "R D"],
    precision: float,
    count: Count | None,
    *,
    gradient: bool,
) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
    """sum_r log sigmoid(rows_r . x) - precision |x|^2 / 2, and its gradient in x if wanted."""
    prior = jnp.asarray(precision, x.dtype)
    return _posterior("logistic_regression", x, count, gradient, rows=rows, precision=prior)


def logistic_regression_minibatch(
    x: Float[Array, "N D"],
    rows: Float[Array, "R D"],
    precision: float,
    start: Int[Array, " N"],
    stride: Int[Array, " N"],
    size: int,
    count: Count | None,
    *,
    gradient: bool,
) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
    """R / size sum_j log sigmoid(rows_r . x) - precision |x|^2 / 2 with r = (start + stride j) mod R."""
    batch = {"start": start, "stride": stride, "size": jnp.asarray(size, jnp.int32)}
    prior = jnp.asarray(precision, x.dtype)
    name = "logistic_regression_minibatch"
    return _posterior(name, x, count, gradient, rows=rows, **batch, precision=prior)


def wine_network(
    x: Float[Array, "N 177"],
    features: Float[Array, "R 11"],
    quality: Float[Array, " R"],
    start: Int[Array, " N"],
    stride: Int[Array, " N"],
    size: int,
    count: Count | None,
    *,
    gradient: bool,
) -> tuple[Float[Array, " N"], Float[Array, "N 177"] | None]:
    """-R / size sum_j (f(features_r) - quality_r)^2 - |x|^2 / 2 with r = (start + stride j) mod R.

    f is the network 11-8-8-1 with weights x, hidden layers of sigmoids and a linear output.
    """
    batch = {"start": start, "stride": stride, "size": jnp.asarray(size, jnp.int32)}
    return _posterior("wine_network", x, count, gradient, features=features, **batch, quality=quality)


def _posterior(
    kernel: str, x: Float[Array, "N D"], count: Count | None, gradient: bool, **arrays: Array
) -> tuple[Float[Array, " N"], Float[Array, "N D"] | None]:
    """A value for every point x, and its gradient if wanted."""
    number = jnp.asarray(x.shape[0] if count is None else count, jnp.int32)
    value, *more = LIBRARY.call(kernel, {"x": x, "count": number, **arrays}, optional=gradient)
    return value, more[0] if gradient else None
