"""The arguments of `fit` that say where it starts, checked and completed."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from natmix.checks import as_int, float_type
from natmix.gaussians import AbstractGaussians, family_named
from natmix.initialization.draws_mixture import InitialDraws
from natmix.initialization.region import Region, initial_mixture
from natmix.initialization.starts import STARTS, Initialization, Setting
from natmix.initialization.starts.base import wider
from natmix.mixture import Mixture
from natmix.mixture.negligible import usable_components
from natmix.models import AbstractModel
from natmix.modules.codenames import MODULES
from natmix.random_keys import run_key
from natmix.targets import AbstractTarget, as_target
from natmix.targets.base import check_dim
from natmix.text.suggestions import meant


def check_names(overrides: dict[str, Any], arguments: Iterable[str]) -> None:
    """Raise for a keyword that is neither an argument nor a module."""
    known = (*MODULES, "temperature", "zero_penalty")
    for name in overrides:
        if name not in known:
            raise ValueError(
                f"fit has no argument {name!r}.{meant(name, [*arguments, *known])} "
                f"Hyperparameters go by module: {', '.join(known)}."
            )


@dataclasses.dataclass(frozen=True)
class StartArguments:
    """Where a fit starts, as the user says it.

    Attributes:
        region: the initial region.
        components: how many to start with, if the user says so; with draws, at most.
        mixture: to start from, if there is one, given or made of draws.
        draws: to start from, if there are some.
        method: one of `STARTS`.
        named: whether the user has named the method.
        family: of the covariances.
        dtype: of the computation.
    """

    region: Region
    components: int | None
    mixture: Mixture | None
    draws: InitialDraws | None
    method: str
    named: bool
    family: type[AbstractGaussians]
    dtype: Any

    @classmethod
    def checked(
        cls,
        region: Region,
        components: int | None,
        mixture: Mixture | None,
        draws: InitialDraws | None,
        start: str | None,
        covariance: str | None,
        dtype: Any,
        model: AbstractModel | None,
        seed: int,
    ) -> "StartArguments":
        """All arguments of `fit` about the start, completed by what the model knows."""
        given = {"init_mixture": mixture is not None, "init_draws": draws is not None}
        known = [name for name, there in given.items() if there]
        if len(known) > 1:
            raise ValueError("Give either init_mixture or init_draws, not both.")
        family = _covariance_family(covariance, mixture)
        dtype = float_type(dtype, None if mixture is None else mixture.dtype)
        method = _start_method(start, model is not None, known)
        if components is not None:
            _check_components(components, mixture)
        if draws is not None:
            mixture = draws.mixture(components, dtype, family)
        if model is not None and mixture is None and not region.given:
            region = _model_region(model, seed)
        if mixture is not None:
            mixture = _usable(mixture.astype(dtype))
        return cls(region, components, mixture, draws, method, start is not None, family, dtype)

    def dimension(self, dim: int | None, target: Any, model: AbstractModel | None) -> int:
        """As the user, the model, the target or the mixture says."""
        if model is not None:
            dim = _agreed_dim(dim, model.dim)
        if dim is not None:
            dim = check_dim(dim)
        elif isinstance(target, AbstractTarget):
            dim = target.dim
        elif self.mixture is not None:
            dim = self.mixture.dim
        else:  # this raises, and says what is missing
            dim = as_target(target, None, self.dtype, np.zeros(0)).target.dim
        if self.mixture is not None and dim != self.mixture.dim:
            raise ValueError(f"init_mixture has {self.mixture.dim} dimensions, the target {dim}.")
        return dim

    def in_region(self, dim: int, key: Array) -> Initialization:
        """The mixture of the initial region, or the one to start from, and where components are sought."""
        if self.mixture is None:
            n = 1 if self.components is None else self.components
            return Initialization(*initial_mixture(dim, self.dtype, key, self.region, self.family, n))
        if not self.region.given:
            return Initialization(self.mixture, None if self.draws is None else wider(self.mixture))
        return Initialization(
            self.mixture, initial_mixture(dim, self.dtype, key, self.region, self.family, 1)[1]
        )

    def method_for(self, target: AbstractTarget) -> str:
        """The method that suits this target."""
        if target.has_gradient or not STARTS[self.method].needs_gradient:
            return self.method
        if self.named:
            raise ValueError(f"start={self.method!r} needs gradients, and the target has none.")
        return "region"

    def found_by(
        self, method: str, target: AbstractTarget, key: Array, most_evaluations: int | None
    ) -> Initialization:
        """What a method other than "region" finds from the region."""
        setting = Setting(
            target, self.region, key, self.dtype, self.family, self.components, most_evaluations
        )
        return STARTS[method].initialise(setting)


def _covariance_family(covariance: str | None, mixture: Mixture | None) -> type[AbstractGaussians]:
    """The covariance family that the user or the mixture names."""
    if mixture is not None and not isinstance(mixture, Mixture):
        raise ValueError(f"init_mixture must be a natmix.Mixture, got {type(mixture).__name__}.")
    of_mixture = None if mixture is None else type(mixture.components)
    if covariance is None:
        return of_mixture or family_named("full")
    family = family_named(covariance)
    if of_mixture not in (None, family):
        assert mixture is not None
        raise ValueError(
            f"covariance is {covariance!r}, but init_mixture has {mixture.covariance_family} covariances."
        )
    return family


def _start_method(start: str | None, is_model: bool, given: list[str]) -> str:
    """A method by name; ``given`` are other arguments that already have the initial mixture."""
    if start is None:
        return "pathfinder" if is_model and not given else "region"
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}.{meant(start, STARTS)}")
    if start != "region" and given:
        raise ValueError(f"Give either start={start!r} or {given[0]}, not both.")
    return start


def _check_components(components: Any, mixture: Mixture | None) -> None:
    if mixture is not None:
        raise ValueError("Give either init_components or init_mixture, not both.")
    as_int(components, "init_components")


def _usable(mixture: Mixture) -> Mixture:
    if not usable_components(mixture).all() or not np.isfinite(np.asarray(mixture.log_weights).max()):
        raise ValueError("init_mixture holds numbers that are not finite or covariances without full rank.")
    return mixture


def _agreed_dim(dim: int | None, known: int) -> int:
    """The dimension of a model, which the user may have named too."""
    if dim is not None and dim != known:
        raise ValueError(f"dim={dim} was given, but the model has {known} unconstrained dimensions.")
    return known


def _model_region(model: AbstractModel, seed: int) -> Region:
    """Where the model expects its variables."""
    start = model.start(jax.random.fold_in(run_key(seed), 3))
    return Region() if start is None else Region(start.mean, start.scale)
