"""The problems' own metrics; `natmix.experiments.metrics` is imported when they are used."""

from collections.abc import Callable

from jaxtyping import Array, Float

from natmix.array_types import PRNGKey
from natmix.experiments.problems.base import SecondaryMetric
from natmix.mixture import Mixture

Prediction = Callable[[Float[Array, "*N D"], Float[Array, "M F"]], Float[Array, "*N M"]]


def detected_modes(modes: Float[Array, "M D"]) -> SecondaryMetric:
    """How many of the target's means have a component nearby."""

    def measure(mixture: Mixture, key: PRNGKey) -> float:
        from natmix.experiments import metrics

        return float(metrics.detected_modes(mixture, modes))

    return measure


def mmd(reference: str) -> SecondaryMetric:
    """Squared maximum mean discrepancy to the stored samples of the problem called ``reference``."""

    def measure(mixture: Mixture, key: PRNGKey) -> float:
        from natmix.experiments import metrics

        return float(metrics.mmd_to_reference(reference, mixture, key))

    return measure


def held_out_mse(
    predict: Prediction, features: Float[Array, "M F"], targets: Float[Array, " M"]
) -> SecondaryMetric:
    """Mean squared error of the posterior-mean prediction on held-out data."""

    def measure(mixture: Mixture, key: PRNGKey) -> float:
        from natmix.experiments import metrics

        return float(metrics.posterior_mse(predict, mixture, key, features, targets))

    return measure


def accuracy(
    probabilities: Prediction, features: Float[Array, "M F"], labels: Float[Array, " M"]
) -> SecondaryMetric:
    """Share of held-out labels that the posterior predictive (2000 samples) predicts correctly."""

    def measure(mixture: Mixture, key: PRNGKey) -> float:
        from natmix.experiments import metrics

        return float(metrics.predictive_accuracy(probabilities, mixture, key, features, labels, samples=2000))

    return measure
