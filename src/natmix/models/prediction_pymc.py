"""Posterior predictive samples of a PyMC model."""

from typing import Any

import numpy as np


def predictions(model: Any, seed: int, latent: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The observed variables, drawn for samples of the free ones.

    The free variables are inputs of the compiled function, so it cannot draw them from their prior:
    `pymc.sample_posterior_predictive` does so where it thinks that data or coordinates have changed.
    """
    from pymc.pytensorf import compile as compiled
    from pytensor.graph.replace import clone_replace

    observed, free = list(model.observed_RVs), list(model.free_RVs)
    if not observed:
        raise ValueError("The model observes nothing, so there is nothing to predict.")
    inputs = [rv.type(rv.name) for rv in free]
    outputs = clone_replace(observed, dict(zip(free, inputs, strict=True)))
    with model:
        draw = compiled(inputs, outputs, random_seed=seed, on_unused_input="ignore")
    columns = [np.asarray(latent[rv.name], rv.type.dtype) for rv in free]
    try:
        rows = [draw(*row) for row in zip(*columns, strict=True)]
    except (TypeError, ValueError) as error:
        raise ValueError(
            "The model cannot predict from the samples of the fit. Perhaps its new data do not fit the "
            f"shapes of its latent variables. {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        ) from error
    return {rv.name: np.stack(values) for rv, values in zip(observed, zip(*rows, strict=True), strict=True)}
