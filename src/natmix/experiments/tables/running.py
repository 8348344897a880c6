"""Runs what is missing of a table."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from natmix.experiments import problems, runs
from natmix.experiments.problems import Problem
from natmix.experiments.runs import Limits, RunConfig, Watcher
from natmix.experiments.runs.config import differences
from natmix.experiments.runs.directory import CONFIG, MAY_DIFFER, SeedFiles, mismatch, prepare, read_json
from natmix.experiments.runs.execution import is_finished
from natmix.experiments.runs.loading import read_final
from natmix.experiments.runs.lock import lock
from natmix.experiments.tables.collection import Collection
from natmix.experiments.tables.format import count, numbered
from natmix.experiments.tables.jobs import Job, at_most
from natmix.experiments.tables.tabled import DTYPE


@dataclasses.dataclass
class Report:
    """How it went.

    Attributes:
        ran: seeds that finished now, by name of the run directory.
        failed: seeds that could not go on.
        busy: seeds that another process was running.
        interrupted: whether Ctrl-C (or SIGTERM) ended it.
    """

    ran: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    failed: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    busy: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    interrupted: bool = False


def run_missing(
    jobs: Sequence[Job],
    seeds: Iterable[int],
    out: Path,
    *,
    watch: Callable[[Job], AbstractContextManager[Watcher]],
    say: Callable[[str], None],
    elsewhere: Collection | None = None,
    keep_checkpoints: bool = False,
) -> Report:
    """Run the seeds that have not finished, job after job, each in its directory under ``out``.

    Several processes may do this at once with the same ``out``: a seed is run by the one that
    comes first, the others leave it alone.

    Args:
        jobs: in this order.
        seeds: of every job.
        out: where the run directories are.
        watch: makes what is told how the seeds of a job go.
        say: is told what else there is to know.
        elsewhere: finished seeds in here are not run either.
        keep_checkpoints: also of finished seeds, so that they can go on under higher limits.
    """
    seeds, report = list(seeds), Report()
    configs = _configure_all(jobs, seeds[0], out)
    say(at_most(jobs, len(seeds)))
    for job, config in zip(jobs, configs, strict=True):
        known = elsewhere.finished(job.codename, job.problem) if elsewhere is not None else set()
        todo = _todo(job.folder(out), [s for s in seeds if s not in known], config.limits, job.name, say)
        if not todo:
            continue
        say(f"{job.name}: {len(todo)} of {count(len(seeds), 'seed')} to run")
        with watch(job) as watcher:
            _run_job(job, config, todo, out, watcher, keep_checkpoints, report)
        if report.interrupted:
            break
        jax.clear_caches()  # the next job's programs are others
    return report


def _run_job(
    job: Job, config: RunConfig, seeds: Sequence[int], out: Path, watcher: Watcher, keep: bool, report: Report
) -> None:
    folder, locks = job.folder(out), out / ".locks"
    with contextlib.ExitStack() as held:
        mine = [s for s in seeds if held.enter_context(lock(locks / f"{job.name}-{s}", wait=False))]
        busy = [s for s in seeds if s not in mine]
        if busy:
            report.busy[job.name] = busy
        # Another process may have finished some since.
        mine = [s for s in mine if _standing(folder, s, config.limits) == "todo"]
        if not mine:
            return
        with lock(locks / job.name, wait=True):
            prepare(folder, config.to_json(), mine)
        outcome = runs.execute(
            config,
            mine,
            folder,
            lambda n: _load(job.problem, n),
            watcher=watcher,
            keep_checkpoints=keep,
            together=job.together,
        )
    report.interrupted = outcome.interrupted
    if outcome.failed:
        report.failed[job.name] = list(outcome.failed)
    done = [s for s in mine if s in outcome.run.finished]
    if done:
        report.ran[job.name] = done


def _configure_all(jobs: Sequence[Job], seed: int, out: Path) -> list[RunConfig]:
    """All configurations, so that what is missing or does not fit is known before any work."""
    loaded: dict[str, Problem] = {}
    for job in jobs:
        if job.problem not in loaded:
            loaded[job.problem] = _load(job.problem, seed)
    configs = [
        runs.configure(loaded[job.problem], job.codename, preset="paper", dtype=DTYPE, limits=job.limits)
        for job in jobs
    ]
    for job, config in zip(jobs, configs, strict=True):
        _check_same(job.folder(out), config)
    return configs


def _check_same(folder: Path, config: RunConfig) -> None:
    if (folder / CONFIG).is_file():
        found = differences(read_json(folder / CONFIG), json.loads(json.dumps(config.to_json())), MAY_DIFFER)
        if found:
            raise ValueError(mismatch(folder, found))


def _load(problem: str, seed: int) -> Any:
    return problems.load(problem, seed=seed, dtype=jnp.dtype(DTYPE))


def _todo(
    folder: Path, seeds: Sequence[int], limits: Limits, name: str, say: Callable[[str], None]
) -> list[int]:
    standing = {seed: _standing(folder, seed, limits) for seed in seeds}
    short = [seed for seed, how in standing.items() if how == "short"]
    if short:
        say(
            f"{name}: finished under another limit, without checkpoints to go on from: "
            f"{numbered(short)}; to run them anew, remove their folders."
        )
    return [seed for seed, how in standing.items() if how == "todo"]


def _standing(folder: Path, seed: int, limits: Limits) -> str:
    """Whether a seed is done, still to do, or ended short of these limits and cannot go on."""
    if read_final(SeedFiles(folder, seed).final) is None:  # a damaged file is an error
        return "todo"
    try:
        return "done" if is_finished(folder, seed, limits) else "todo"
    except ValueError:
        return "short"
