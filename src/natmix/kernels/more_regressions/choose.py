"""Which form of MORE's regressions is used."""

from collections.abc import Callable
from typing import Literal, Protocol

from jaxtyping import Array, Bool, Float

from natmix.array_types import Scalar
from natmix.kernels.forms import first_applicable, otherwise
from natmix.kernels.gaussian_batch import GaussianBatch
from natmix.kernels.log_densities import native_applies
from natmix.kernels.more_regressions.dense import DenseRegressions
from natmix.kernels.more_regressions.native import NativeRegressions
from natmix.kernels.more_regressions.ridge import num_features
from natmix.kernels.more_regressions.sparse import SparseRegressions
from natmix.kernels.plan import Plan, current
from natmix.kernels.sample_arrays import SampleArrays

Form = Literal["native", "sparse", "dense"]

_NATIVE_FEATURES = 1000
"""With more features the gain is small, and the sums take much memory."""
_ACCELERATOR_WORK = 2**36
"""Multiplications of the dense form up to which an accelerator does it faster than the sparse form."""


class Regressions(Protocol):
    """Weighted samples, ready for the regressions of all components."""

    @property
    def log_scale(self) -> Float[Array, " K"]: ...
    @property
    def ok(self) -> Bool[Array, " K"]: ...
    @property
    def inside(self) -> Float[Array, " K"]: ...
    @property
    def total(self) -> Float[Array, " K"]: ...

    def regress(
        self,
        gaussians: GaussianBatch,
        present: Bool[Array, " K"],
        samples: SampleArrays,
        extra: Float[Array, " K"],
        ridge: Float[Array, " K"],
    ) -> Float[Array, "K F"]: ...


_CLASSES: dict[str, type[NativeRegressions | SparseRegressions | DenseRegressions]] = {
    "native": NativeRegressions,
    "sparse": SparseRegressions,
    "dense": DenseRegressions,
}


def _native_pays(plan: Plan, gaussians: GaussianBatch, samples: int, own_samples_only: bool) -> bool:
    few = num_features(gaussians) <= _NATIVE_FEATURES and not own_samples_only
    return few and native_applies(plan, gaussians, samples)


def _sparse_pays(plan: Plan, gaussians: GaussianBatch, samples: int, own_samples_only: bool) -> bool:
    """On one device, with several components, if that saves enough work."""
    work = samples * gaussians.capacity * num_features(gaussians) ** 2
    return gaussians.capacity > 1 and plan.mesh is None and (plan.on_cpu or work > _ACCELERATOR_WORK)


FORMS: tuple[tuple[Form, Callable[[Plan, GaussianBatch, int, bool], bool]], ...] = (
    ("native", _native_pays),
    ("sparse", _sparse_pays),
    ("dense", otherwise),
)


def choose(plan: Plan, gaussians: GaussianBatch, samples: int, own_samples_only: bool) -> Form:
    """Negligible pairs are skipped if that saves enough work."""
    return first_applicable(FORMS, plan, gaussians, samples, own_samples_only)


def regressions(
    gaussians: GaussianBatch,
    log_weights: Float[Array, " K"],
    samples: SampleArrays,
    temperature: Scalar,
    self_normalised: bool,
    own_samples_only: bool,
    form: Form | None = None,
) -> Regressions:
    """The importance weights of these samples and their sums, ready for the regressions.

    Args:
        gaussians: the components.
        log_weights: of the components, -inf for absent ones.
        samples: of this iteration.
        temperature: T in the reward log p~ - T log q.
        self_normalised: whether the weights of each component sum to one.
        own_samples_only: whether each component uses only its own new samples, all with the same weight.
        form: chosen by `choose` unless given.
    """
    form = form or choose(current(), gaussians, samples.x.shape[0], own_samples_only)
    return _CLASSES[form].of(gaussians, log_weights, samples, temperature, self_normalised, own_samples_only)
