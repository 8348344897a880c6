"""What a problem is: a NumPyro model, and what is known of its posterior."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from natmix.models import NumpyroModel
from posteriors.symmetry import Symmetry

Draws = Float[np.ndarray, "N M"]
"""Samples of the quantities that are compared."""


@dataclasses.dataclass(frozen=True)
class Truth:
    """The reference.

    Attributes:
        mean: of every quantity.
        sd: their standard deviations.
        mean_error: standard error of ``mean`` in units of ``sd``, the largest; 0 if exact.
        log_evidence: log Z.
        log_evidence_se: its standard error; 0 if exact.
        source: how it came about, in words.
    """

    mean: Float[np.ndarray, " M"]
    sd: Float[np.ndarray, " M"]
    mean_error: float
    log_evidence: float
    log_evidence_se: float
    source: str


@dataclasses.dataclass(frozen=True)
class Problem:
    """A posterior.

    Attributes:
        name: short.
        title: for the table.
        model: a NumPyro model.
        kwargs: its arguments, data among them.
        quantities: the model's variables that are compared, deterministics among them.
        truth: makes the reference.
        symmetry: that the posterior is known to have, in unconstrained coordinates.
        exact: independent samples of the quantities, where there is a way to draw them.
    """

    name: str
    title: str
    model: Callable[..., Any]
    kwargs: dict[str, Any]
    quantities: tuple[str, ...]
    truth: "Callable[[Problem], Truth]"
    symmetry: Symmetry | None = None
    exact: Callable[[np.random.Generator, int], Draws] | None = None

    def compiled(self) -> NumpyroModel:
        """The model with its data, as natmix sees it."""
        return NumpyroModel(self.model, (), self.kwargs)

    def flat(self, samples: dict[str, np.ndarray]) -> Draws:
        """The quantities of samples by name, side by side."""
        parts = [np.asarray(samples[name], float) for name in self.quantities]
        return np.concatenate([p.reshape(len(p), -1) for p in parts], axis=1)
