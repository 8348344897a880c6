"""natmix with its defaults."""

import time
import warnings

import numpy as np

import natmix
from natmix.result.resampling import resample
from posteriors.outcome import Outcome
from posteriors.problem import Problem

POOL = 20_000
"""Samples of the mixture: for the raw moments, and evaluated for the corrected ones."""


def run(problem: Problem, seed: int, max_evaluations: int | None = None) -> Outcome:
    """``natmix.fit(model)``, its samples, and those of ``result.resample(20_000, pool=20_000)``."""
    started = time.perf_counter()
    result = natmix.fit(
        problem.model, model_kwargs=problem.kwargs, seed=seed, max_evaluations=max_evaluations, progress=False
    )
    found = result.diagnose(search=0, explore=0)  # others have no search either
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows k-hat
        corrected = np.asarray(resample(result, POOL, POOL, seed), float)
    seconds = time.perf_counter() - started
    return Outcome(
        "natmix",
        result.counts.evaluations + POOL,
        seconds,
        np.asarray(result.mixture.sample(POOL, key=seed + 1000), float),
        corrected,
        np.ones(len(corrected)),
        result.elbo.value,
        found.log_evidence.value,
        found.log_evidence.standard_error,
        found.k_hat,
        found.verdict,
        len(found.modes),
    )
