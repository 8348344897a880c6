"""A fit, by the folder of its checkpoints or by the one that `natmix fit` has written."""

import platform
from pathlib import Path
from typing import Any

from natmix.engine.fit_checkpoint import RESULT, STATE
from natmix.engine.progress_file import (
    CHECKING,
    COMPILING,
    PROGRESS,
    RUNNING,
    curves_of,
    read_progress,
)
from natmix.engine.state_file import group
from natmix.estimate import counted
from natmix.files.arrays import SealedArrays, read_arrays
from natmix.files.generations import exists, newest
from natmix.files.json_text import parse_exact_json
from natmix.files.seal import FIT_CHECKPOINT
from natmix.result.diagnosing import known_diagnosis
from natmix.result.result import Result
from natmix.watch import view
from natmix.watch.view import RunView, last, modified, rate_of, silence

_PHASES = {
    COMPILING: "compiling",
    RUNNING: "running",
    CHECKING: "checking what it has: fresh samples, searches for other modes",
}
_ENDS = {
    "converged": "converged",
    "max_iterations": "stopped at the limit of iterations",
    "max_evaluations": "stopped at the limit of evaluations",
    "max_seconds": "stopped at the time limit",
    "callback": "stopped by its callback; the same call goes on",
    "interrupted": "interrupted; the same call goes on",
    "failed": "the target raised an error; the same call goes on",
}


def is_fit(folder: Path) -> bool:
    """Whether a folder has files of a fit."""
    return any((folder / name).is_file() for name in (PROGRESS, RESULT)) or exists(folder / STATE)


def fit_view(folder: Path, name: str) -> RunView:
    """What is known of a fit; files that are damaged are told in its notes.

    The result is shown if there is one, otherwise the file of its progress, otherwise the last checkpoint.
    """
    trouble: list[str] = []
    checkpoint = modified(folder / STATE)
    for read in (_by_result, _by_progress, _by_checkpoint):
        try:
            found = read(folder, name, checkpoint)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            trouble.append(str(error))
            continue
        if trouble:
            plain = vars(found) | {"notes": (*found.notes, *trouble)}
            return RunView(**plain)
        return found
    if trouble:
        return RunView(name, state=view.UNREADABLE, detail=trouble[0], notes=tuple(trouble[1:]))
    return RunView(name, detail="no news yet", updated=modified(folder))


def _by_result(folder: Path, name: str, checkpoint: float | None) -> RunView:
    path = folder / RESULT
    result = Result.load(path)
    found = known_diagnosis(result)
    curves = curves_of(result.trajectory, result.counts.first_evaluations)
    headline, *_ = str(found).splitlines() if found is not None else [""]
    return RunView(
        name,
        about=_about(result.algorithm.codename, result.mixture.dim),
        state=_ended(result.stopped),
        detail=_ENDS.get(result.stopped, result.stopped),
        iterations=result.counts.iterations,
        evaluations=result.counts.evaluations,
        components=result.mixture.num_components,
        seconds=float(result.timings.total),
        rate=rate_of(curves),
        elbo=float(result.elbo.value),
        elbo_se=float(result.elbo.standard_error),
        kl=None if found is None else float(found.gap.value),
        goal=_number(result.settings.get("accuracy")),
        share=1.0,
        updated=modified(path),
        checkpoint=checkpoint,
        verdict="none" if found is None else found.verdict,
        reasons=() if found is None else (headline, *found.reasons),
        notes=result.notes,
        curves=curves,
    )


def _by_progress(folder: Path, name: str, checkpoint: float | None) -> RunView:
    found = read_progress(folder / PROGRESS)
    curves, phase = found["curves"], found["phase"]
    state = view.RUNNING if phase in _PHASES else _ended(phase)
    return RunView(
        name,
        about=_about(found["algorithm"], found["dim"]),
        state=state,
        detail=_ENDS.get(phase, phase),
        iterations=found["iterations"],
        evaluations=found["evaluations"],
        components=found["components"] or None,
        seconds=found["seconds"],
        rate=rate_of(curves),
        elbo=last(curves["elbo"]),
        kl=last(curves["kl"]),
        goal=found["accuracy"],
        share=found["share"],
        seconds_left=found["seconds_left"],
        updated=found["written"],
        checkpoint=checkpoint,
        notes=tuple(found["notes"]),
        curves=curves,
        phase=_PHASES.get(phase, ""),
        process=found["process"] if found["host"] == platform.node() else None,
    )


def _by_checkpoint(folder: Path, name: str, checkpoint: float | None) -> RunView:
    """By the file from which a fit goes on, which has all of it but is larger and written less often."""
    content: SealedArrays = newest(folder / STATE, lambda path: read_arrays(path, FIT_CHECKPOINT))[0]
    progress = parse_exact_json(content.metadata["fit"])["progress"]
    settings = parse_exact_json(content.metadata["owner"])["settings"]
    before = parse_exact_json(content.metadata["before"])
    curves = curves_of(group(content, "trajectory."), int(before["evaluations"]) + int(before["probes"]))
    state, detail = silence(checkpoint)
    return RunView(
        name,
        about=_about(str(settings["algorithm"]["codename"]), int(settings["dim"])),
        state=state,
        detail=detail,
        iterations=int(progress["iterations"]),
        evaluations=last(curves["evaluations"]),
        components=int(progress["components"]),
        seconds=float(progress["seconds"]),
        rate=rate_of(curves),
        elbo=last(curves["elbo"]),
        kl=last(curves["kl"]),
        goal=_number(settings.get("accuracy")),
        updated=checkpoint,
        checkpoint=checkpoint,
        curves=curves,
    )


def _ended(stopped: str) -> str:
    return {"failed": view.FAILED, "interrupted": view.INTERRUPTED, "callback": view.INTERRUPTED}.get(
        stopped, view.ENDED
    )


def _about(codename: str, dim: int) -> str:
    return f"{codename} on {counted(dim, 'dimension')}"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
