"""The arguments of `fit`, checked and completed."""

import difflib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from natmix.initialization import STARTS, defaults
from natmix.mixture import Mixture
from natmix.mixture.negligible import usable_components
from natmix.models import AbstractModel
from natmix.modules.codenames import MODULES
from natmix.random_keys import run_key as run_key
from natmix.targets import AbstractTarget
from natmix.targets.base import check_dim


def check_names(overrides: dict[str, Any], arguments: Iterable[str]) -> None:
    """Raise for a keyword that is neither an argument nor a module."""
    known = (*MODULES, "temperature", "zero_penalty")
    for name in overrides:
        if name not in known:
            close = difflib.get_close_matches(name, [*arguments, *known], 1)
            raise ValueError(
                f"fit has no argument {name!r}{f', did you mean {close[0]!r}?' if close else ';'} "
                f"Hyperparameters go by module: {', '.join(known)}."
            )


def covariance_kind(covariance: str | None, mixture: Mixture | None) -> str:
    """Full or diagonal, as the user or the mixture says."""
    if mixture is not None and not isinstance(mixture, Mixture):
        raise ValueError(f"init_mixture must be a natmix.Mixture, got {type(mixture).__name__}.")
    of_mixture = None if mixture is None else "diagonal" if mixture.is_diagonal else "full"
    kind = covariance or of_mixture or "full"
    if kind not in ("full", "diagonal"):
        raise ValueError(f"covariance must be 'full' or 'diagonal', got {covariance!r}.")
    if of_mixture not in (None, kind):
        raise ValueError(f"covariance is {kind!r}, but init_mixture has {of_mixture} covariances.")
    return kind


def start_method(start: str | None, is_model: bool, mixture: Mixture | None) -> str:
    """The name of the way to begin."""
    if start is None:
        return "pathfinder" if is_model and mixture is None else "region"
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}.")
    if start != "region" and mixture is not None:
        raise ValueError(f"Give either start={start!r} or init_mixture, not both.")
    return start


def agreed_dim(dim: int | None, known: int) -> int:
    """The dimension of a model, which the user may have named too."""
    if dim is not None and dim != known:
        raise ValueError(f"dim={dim} was given, but the model has {known} unconstrained dimensions.")
    return known


def model_region(model: AbstractModel, seed: int) -> defaults.Region:
    """Where the model expects its variables."""
    start = model.start(jax.random.fold_in(run_key(seed), 3))
    return defaults.Region() if start is None else defaults.Region(start.mean, start.scale)


def dimension(dim: int | None, target: Any, mixture: Mixture | None) -> int | None:
    """As the user, the target or the mixture says; None if nobody does."""
    if dim is not None:
        dim = check_dim(dim)
    elif isinstance(target, AbstractTarget):
        dim = target.dim
    elif mixture is not None:
        dim = mixture.dim
    if mixture is not None and dim != mixture.dim:
        raise ValueError(f"init_mixture has {mixture.dim} dimensions, the target {dim}.")
    return dim


def starting_mixture(
    dim: int,
    dtype: Any,
    key: Any,
    region: defaults.Region,
    kind: str,
    components: int | None,
    mixture: Mixture | None,
) -> tuple[Mixture, Mixture | None]:
    """The starting mixture, and the region where components are sought (None: the mixture's own)."""
    if mixture is None:
        return defaults.start(
            dim, dtype, key, region, kind == "diagonal", 1 if components is None else components
        )
    if components is not None:
        raise ValueError("Give either init_components or init_mixture, not both.")
    mixture = mixture.astype(dtype)
    if not usable_components(mixture).all() or not np.isfinite(np.asarray(mixture.log_weights).max()):
        raise ValueError("init_mixture holds numbers that are not finite or covariances without full rank.")
    if not region.given:
        return mixture, None
    return mixture, defaults.start(dim, dtype, key, region, kind == "diagonal", 1)[1]
