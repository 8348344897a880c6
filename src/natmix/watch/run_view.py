"""The seeds of a run directory of `natmix run`."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from natmix.engine.progress_file import ProgressCurves, finite_means
from natmix.experiments.runs import SeedRun, load_run
from natmix.experiments.runs.directory import SeedFiles
from natmix.watch import view
from natmix.watch.view import NO_CURVES, RunView, last, modified, rate_of, silence

_LIMITS = {
    "max_seconds": "seconds",
    "max_evaluations": "evaluations",
    "max_iterations": "iterations",
}


def seed_view(folder: Path, seed: int, name: str) -> RunView:
    """What is known of a seed; what cannot be read is told."""
    try:
        run = load_run(folder)
        found = run.seeds.get(seed)
        about = f"{run.codename} on {run.problem}"
        if found is None:
            return RunView(name, about=about, detail="not started")
        return _view(found, SeedFiles(folder, seed), name, about, run.config["limits"])
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        return RunView(name, state=view.UNREADABLE, detail=str(error))


def _view(seed: SeedRun, files: SeedFiles, name: str, about: str, limits: dict[str, Any]) -> RunView:
    checkpoint = modified(files.checkpoint)
    final, failure = seed.final, seed.failure
    times = [modified(path) for path in (files.metrics, files.checkpoint, files.final, files.failed)]
    updated = max((t for t in times if t is not None), default=None)
    curves = _curves(seed)
    metrics = seed.metrics
    now = {name: float(values[-1]) for name, values in metrics.items() if len(values)}
    if final is not None:
        now |= {name: float(final[name]) for name in now if isinstance(final.get(name), (int, float))}
        state, detail = view.ENDED, f"ended: {final['stopped']}"
    elif failure is not None:
        state, detail = view.FAILED, f"failed: {failure['error']}"
    else:
        state, detail = silence(updated)
    share, left = _budget(now, limits)
    return RunView(
        name,
        about=about,
        state=state,
        detail=detail,
        iterations=_whole(now.get("iterations")),
        evaluations=_whole(now.get("evaluations")),
        components=_whole(now.get("components")),
        seconds=now.get("seconds"),
        rate=rate_of(curves),
        elbo=None if "neg_elbo" not in now else -now["neg_elbo"],
        elbo_se=now.get("neg_elbo_se"),
        kl=last(curves["kl"]),
        share=1.0 if final is not None else share,
        seconds_left=None if final is not None or failure is not None else left,
        updated=updated,
        checkpoint=checkpoint,
        notes=_notes(final),
        curves=curves,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else int(value)


def _notes(final: dict[str, Any] | None) -> tuple[str, ...]:
    """Metrics of a seed that has finished, and what could not be computed."""
    if final is None:
        return ()
    missing = final.get("missing_metrics")
    notes = []
    if isinstance(missing, dict):
        notes = [f"{name} is missing: {why}" for name, why in missing.items()]
    if "metrics_error" in final:
        notes.append(f"The metrics could not be computed: {final['metrics_error']}")
    return tuple(notes)


def _curves(seed: SeedRun) -> ProgressCurves:
    """At the evaluations of the ELBO; KL is a mean over the iterations between two of them."""
    metrics = seed.metrics
    iterations = metrics["iterations"].astype(int)
    if not len(iterations):
        return NO_CURVES
    return ProgressCurves(
        iterations=iterations.tolist(),
        evaluations=metrics["evaluations"].astype(int).tolist(),
        seconds=metrics["seconds"].astype(float).tolist(),
        elbo=[-v if math.isfinite(v) else None for v in metrics["neg_elbo"].astype(float).tolist()],
        kl=_kl(seed, iterations),
        components=metrics["components"].astype(int).tolist(),
    )


def _kl(seed: SeedRun, iterations: np.ndarray) -> list[float | None]:
    """None after the last iteration that a checkpoint has."""
    try:
        values = np.asarray(seed.trace.get("kl", np.zeros(0)), float)
    except (OSError, ValueError):
        values = np.zeros(0)
    ends = iterations[iterations <= len(values)]
    known = np.flatnonzero(np.diff(ends, prepend=0) > 0)
    starts = np.concatenate([[0], ends[known][:-1]]).astype(int) if len(known) else np.zeros(0, int)
    found: list[float | None] = [None] * len(iterations)
    if len(known):
        means = finite_means(values[: ends[known][-1]], starts)
        for i, mean in zip(known.tolist(), means, strict=True):
            found[i] = mean
    return found


def _budget(now: dict[str, float], limits: dict[str, Any]) -> tuple[float | None, float | None]:
    """The share that is spent of the limit that is reached first, and the seconds left until then."""
    seconds, best = now.get("seconds", 0.0), None
    for limit, what in _LIMITS.items():
        most, done = limits.get(limit), now.get(what, 0.0)
        if most and done > 0:
            left = seconds * max(most - done, 0.0) / done
            if best is None or left < best[1]:
                best = (min(done / most, 1.0), left)
    return best or (None, None)
