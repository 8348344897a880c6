"""The contract of a start: how a fit gets its initial mixture."""

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natmix.gaussians import AbstractGaussians
from natmix.initialization.evaluator import BudgetSpentError, TargetEvaluator
from natmix.initialization.region import Region, initial_mixture
from natmix.mixture import Mixture
from natmix.targets import AbstractTarget

_WIDER = 2.0
"""The prior if the user names no region: as wide as the initial mixture, times this factor."""


class Initialization(NamedTuple):
    """Where a run starts.

    Attributes:
        mixture: the initial mixture.
        prior: one Gaussian, from which candidates for new components are drawn; None for the mixture's own
            mean and covariance.
        evaluations: of the target, to find the initial mixture.
        note: for the user; empty if there is nothing to say.
    """

    mixture: Mixture
    prior: Mixture | None
    evaluations: int = 0
    note: str = ""


class Setting(NamedTuple):
    """What a start works with.

    Attributes:
        target: the log density.
        region: the initial region, as the user or the model names it.
        key: every random number follows from it.
        dtype: of the computation.
        family: of the covariances.
        components: how many the user wants; None if nobody says.
        max_evaluations: of the target, at most; None for no limit.
    """

    target: AbstractTarget
    region: Region
    key: Array
    dtype: Any
    family: type[AbstractGaussians]
    components: int | None = None
    max_evaluations: int | None = None

    def from_region(self, key: Array) -> tuple[Mixture, Mixture]:
        """The initial region as a mixture (several means are drawn from it), and as one Gaussian."""
        n = 1 if self.components is None else self.components
        return initial_mixture(self.target.dim, self.dtype, key, self.region, self.family, n)

    def mixture(
        self,
        weights: Float[np.ndarray, " K"],
        means: Float[np.ndarray, "K D"],
        covariances: Float[np.ndarray, "K D D"],
    ) -> Mixture:
        """A mixture of this family and type."""
        parts = self.family.from_covariance(*(jnp.asarray(a, self.dtype) for a in (means, covariances)))
        return Mixture(jnp.asarray(np.log(weights), self.dtype), parts)


class AbstractStart(abc.ABC):
    """Finds the initial mixture.

    Attributes:
        name: as in ``fit(start=name)``.
        needs_gradient: whether the target must have gradients.
    """

    name: ClassVar[str]
    needs_gradient: ClassVar[bool] = False

    @abc.abstractmethod
    def initialise(self, setting: Setting) -> Initialization:
        """The initial mixture, and where components may be expected."""


class Found(NamedTuple):
    """What a search found, if anything, and a note for the user."""

    mixture: Mixture | None
    note: str = ""


class AbstractSearchStart(AbstractStart):
    """A start that evaluates the target; where it finds nothing the initial region itself is taken."""

    def initialise(self, setting: Setting) -> Initialization:
        key_region, key_target, key_search = jax.random.split(setting.key, 3)
        mixture, prior = setting.from_region(key_region)
        evaluator = TargetEvaluator(
            setting.target, key_target, jnp.dtype(setting.dtype), setting.max_evaluations
        )
        try:
            found, note = self.search(setting, evaluator, prior, key_search)
        except BudgetSpentError:
            note = f"Start {self.name!r} used up its evaluations: the fit starts from the initial region."
            found = None
        if found is None:
            return Initialization(mixture, prior, evaluator.evaluations, note)
        return Initialization(
            found, prior if setting.region.given else wider(found), evaluator.evaluations, note
        )

    @abc.abstractmethod
    def search(self, setting: Setting, evaluator: TargetEvaluator, prior: Mixture, key: Array) -> Found:
        """A mixture found by evaluating the target through ``evaluator``, from the region ``prior``.

        It raises `BudgetSpentError` when the evaluations are used up; uncaught, that ends the search.
        """


def wider(found: Mixture) -> Mixture:
    """One Gaussian around a mixture, where further components may be expected."""
    wide = found.covariance() * _WIDER**2
    family = type(found.components)
    return Mixture(jnp.zeros(1, found.dtype), family.from_covariance(found.mean()[None], wide[None]))
