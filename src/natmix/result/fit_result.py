"""The result of what a fit found."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natmix.engine.single_fit import FitOutcome
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.models import AbstractModel
from natmix.result.result import Counts, Result, Timings
from natmix.targets import AbstractTarget


class BeforeIterations(NamedTuple):
    """What a fit did before its first iteration.

    Attributes:
        probe_evaluations: of the target, to find out what kind of function it is.
        start_evaluations: of the target, to find an initial mixture.
        seconds: from the call on.
        prior: one Gaussian, where components are sought.
    """

    probe_evaluations: int
    start_evaluations: int
    seconds: float
    prior: Mixture


def fit_result(
    outcome: FitOutcome,
    before: BeforeIterations,
    algorithm: GMMVI,
    target: AbstractTarget,
    model: AbstractModel | None,
    settings: dict[str, Any],
    notes: Sequence[str],
    total_seconds: float,
) -> Result:
    """The `Result` of a fit."""
    trajectory = dict(outcome.trajectory)
    counts = _counts(outcome, before)
    if trajectory:
        cumulative = np.cumsum(trajectory["evaluations"].astype(np.int64))
        trajectory["total_evaluations"] = counts.first_evaluations + cumulative
    return Result(
        mixture=outcome.mixture,
        elbo=outcome.elbo,
        trajectory=trajectory,
        counts=counts,
        timings=Timings(
            compilation=outcome.compile_seconds,
            iterations=outcome.running_seconds,
            elbo=outcome.elbo_seconds,
            total=total_seconds,
            start=before.seconds,
            verification=outcome.verification_seconds,
        ),
        stopped=outcome.stopped,
        algorithm=algorithm,
        settings=settings,
        notes=(*notes, *outcome.notes, *share_notes(counts)),
        draws=outcome.draws,
        target=target,
        start=before.prior,
        model=model,
        verification=outcome.verification,
    )


def finished_result(path: Path, target: AbstractTarget, model: AbstractModel | None) -> Result:
    """The result of a fit that has ended before, with its target and model."""
    from natmix.result.files import load_result
    from natmix.result.saved_model import GivenModel

    result = load_result(path, GivenModel())
    return dataclasses.replace(result, target=target, model=model)


def _counts(outcome: FitOutcome, before: BeforeIterations) -> Counts:
    def total(name: str) -> int:
        found = outcome.trajectory.get(name)
        return 0 if found is None else int(found.astype(np.int64).sum())

    made = outcome.verification
    repaired = 0 if made is None else sum(r.components for r in made.repairs)
    return Counts(
        iterations=outcome.iterations,
        training_evaluations=outcome.evaluations,
        elbo_evaluations=outcome.elbo.samples,
        probe_evaluations=before.probe_evaluations,
        start_evaluations=before.start_evaluations,
        verification_evaluations=0 if made is None else made.evaluations,
        refuted_evaluations=outcome.refuted_evaluations,
        zeros=total("zeros"),
        invalid=total("invalid"),
        failed_updates=total("failed_updates"),
        added=total("added") + repaired,
        deleted=total("deleted"),
        left_out=outcome.left_out,
    )


def share_notes(counts: Counts) -> list[str]:
    """What the user should know about densities of zero and invalid ones."""
    notes = []
    n = max(counts.training_evaluations, 1)
    if counts.zeros:
        notes.append(
            f"{counts.zeros:,} evaluations ({counts.zeros / n:.2%}) had log density -inf, a density of zero."
        )
    if counts.invalid:
        notes.append(
            f"{counts.invalid:,} evaluations ({counts.invalid / n:.2%}) gave NaN, +inf or a gradient that is "
            "not finite; they were excluded from the updates."
        )
    return notes
