"""How many trials of a study share a program."""

from natmix.experiments.studies.definition import Study
from natmix.experiments.studies.own_device import visible_devices

ON_ACCELERATOR = 16
"""Trials at once on an accelerator, unless there is no memory for so many."""


def slots_for(study: Study, wanted: int | None) -> int:
    """Trials that each process runs at once.

    Args:
        study: the study.
        wanted: what was asked for; None: many on a machine with an accelerator, one on a CPU, where trials
            would take turns.
    """
    if wanted is not None and wanted < 1:
        raise ValueError(f"--slots must be at least 1, got {wanted}.")
    timed = [
        name
        for name, problem in study.problems.items()
        if problem.limits.max_seconds is not None or problem.limits.max_run_seconds is not None
    ]
    if wanted is None:
        return ON_ACCELERATOR if visible_devices() and not timed else 1
    if wanted > 1 and timed:
        raise ValueError(
            f"The budget on {timed[0]} has a limit of time, and trials that run together share their time: "
            "limit iterations or evaluations, or leave --slots out."
        )
    return wanted
