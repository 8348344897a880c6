"""Posterior predictive samples of a NumPyro model."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from natmix.array_types import PRNGKey
from natmix.models.numpyro_checks import misfit


def predictions(
    model: Callable[..., Any], key: PRNGKey, latent: dict[str, np.ndarray], args: tuple[Any, ...], kwargs: Any
) -> dict[str, np.ndarray]:
    """Posterior predictive samples and deterministics, for arguments without data."""
    _check_arguments(model, args, kwargs)
    import numpyro.handlers
    from numpyro.infer import Predictive

    first = {name: value[0] for name, value in latent.items()}
    once = numpyro.handlers.seed(numpyro.handlers.substitute(model, data=first), key)
    try:
        trace = numpyro.handlers.trace(once).get_trace(*args, **kwargs)
    except Exception as error:
        raise ValueError(
            f"The model cannot be called with the arguments of predict(): {type(error).__name__}: {error}"
        ) from error
    sites = [s for s in trace.values() if s["type"] == "sample" and s["name"] not in latent]
    drawn = [s["name"] for s in sites if not s["is_observed"]]
    if not drawn:
        raise ValueError(
            "With these arguments the model draws nothing. Call predict() without arguments to draw data "
            "like those of the fit, or give the model's arguments with None for its data."
        )
    wanted = drawn + [s["name"] for s in trace.values() if s["type"] == "deterministic"]
    found = Predictive(model, posterior_samples=latent, return_sites=wanted)(key, *args, **kwargs)
    return {name: np.asarray(found[name]) for name in wanted}


def replicates(
    model: Callable[..., Any],
    names: tuple[str, ...],
    key: PRNGKey,
    latent: dict[str, np.ndarray],
    args: tuple[Any, ...],
    kwargs: Any,
) -> dict[str, np.ndarray]:
    """The observed variables of the fit, drawn again."""
    if not names:
        raise ValueError(
            "The model of the fit observes nothing: give predict() the arguments to call the model with."
        )
    found = predictions(_redrawn(model, names), key, latent, args, kwargs)
    return {name: found[name] for name in names}


def _check_arguments(model: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
    found = misfit(model, args, kwargs)
    if found is not None:
        signature, error = found
        raise ValueError(
            f"predict(n, ...) calls the model with the arguments given, {error}: give the arguments of "
            f"model{signature} without its data, or none at all to draw data like those of the fit."
        )


def _redrawn(model: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    from numpyro.primitives import Messenger

    class Redrawn(Messenger):  # type: ignore[misc]
        """Draws the observed variables."""

        def process_message(self, message: dict[str, Any]) -> None:
            if message["type"] == "sample" and message["name"] in names:
                message["value"], message["is_observed"] = None, False

    return Redrawn(model)


def prediction_key(seed: int) -> PRNGKey:
    """Another key than that of the samples."""
    return jax.random.fold_in(jax.random.key(np.uint32(seed)), 5)
