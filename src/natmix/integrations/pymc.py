"""natmix as a method of PyMC's ``fit`` functions: model in, ArviZ's data out, as in `pymc_extras.fit`."""

from typing import Any, Literal

import numpy as np

from natmix.fit import fit as natmix_fit
from natmix.text.extras import needs

__all__ = ["fit"]


def fit(
    model: Any = None,
    *,
    draws: int = 1000,
    importance_sampling: Literal["psis"] | None = "psis",
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    **options: Any,
) -> Any:
    """Approximate the posterior of a PyMC model and draw from it, with the arguments of `pymc_extras.fit`.

    Within ``with model:`` the model need not be given. `natmix.fit(model)` does the same and returns
    everything: the mixture, the verdict, the evidence.

    Args:
        model: a `pymc.Model` or a `bambi.Model`; that of the context if left out.
        draws: how many.
        importance_sampling: "psis": draws are resampled by smoothed importance weights; a warning says if the
            weights are not reliable. None: the mixture's own draws, with their weights in ``sample_stats``.
        random_seed: a whole number or a generator; another one for every call if left out.
        progressbar: whether to show a live line.
        **options: of `natmix.fit`, for example ``max_evaluations``.

    Returns:
        ArviZ's InferenceData, or DataTree from version 1 on. The attributes of ``posterior`` hold the
        ``verdict``, ``elbo`` and ``log_evidence``.
    """
    if importance_sampling not in ("psis", None):
        raise ValueError(f'importance_sampling must be "psis" or None, got {importance_sampling!r}.')
    if model is None:
        with needs("PyMC", "pymc", "natmix.integrations.pymc"):
            from pymc.model.core import modelcontext

        model = modelcontext(None)
    seed = _seed(random_seed)
    result = natmix_fit(model, seed=seed, progress=progressbar, **options)
    data = result.to_arviz(draws=draws, corrected=importance_sampling == "psis", seed=seed)
    known: dict[str, Any] = {"inference_library": "natmix", "elbo": float(result.elbo)}
    if result.diagnosis is not None:
        evidence = result.diagnosis.log_evidence
        known["verdict"] = result.diagnosis.verdict
        known["log_evidence"] = float(evidence.value)
        known["log_evidence_se"] = float(evidence.standard_error)
    data["posterior"].attrs.update(known)
    return data


def _seed(random_seed: int | np.random.Generator | None) -> int:
    if random_seed is None or isinstance(random_seed, np.random.Generator):
        return int(np.random.default_rng(random_seed).integers(2**32))
    return random_seed
