"""Run the missing cells of a table."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from natmix.estimate import counted
from natmix.experiments import problems, runs
from natmix.experiments.problems import Problem
from natmix.experiments.runs import Limits, RunConfig, Watcher
from natmix.experiments.runs.directory import CONFIG, MAY_DIFFER, SeedFiles, mismatch, prepare, read_config
from natmix.experiments.runs.execution import is_finished
from natmix.experiments.runs.rows import read_final
from natmix.experiments.tables.cells import TableCell, at_most
from natmix.experiments.tables.collection import Collection
from natmix.experiments.tables.formatting import numbered
from natmix.experiments.tables.saved_tables import DTYPE
from natmix.files.differences import differences
from natmix.files.lock import lock


@dataclasses.dataclass
class Report:
    """The outcome of `run_missing`.

    Attributes:
        ran: seeds that finished now, by name of the run directory.
        failed: seeds that failed.
        busy: seeds that another process was running.
        interrupted: whether Ctrl-C (or SIGTERM) ended it.
    """

    ran: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    failed: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    busy: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    interrupted: bool = False


def run_missing(
    cells: Sequence[TableCell],
    seeds: Iterable[int],
    out: Path,
    *,
    watch: Callable[[TableCell], AbstractContextManager[Watcher]],
    say: Callable[[str], None],
    elsewhere: Collection | None = None,
    keep_checkpoints: bool = False,
) -> Report:
    """Run the seeds that have not finished, cell after cell, each in its directory under ``out``.

    Several processes may do this at once with the same ``out``: each seed is run by the first process that
    takes it.

    Args:
        cells: in this order.
        seeds: of every cell.
        out: where the run directories are.
        watch: makes the object that follows the progress of a cell's seeds.
        say: called with messages for the user.
        elsewhere: finished seeds in here are not run either.
        keep_checkpoints: of finished seeds too, so that they can be continued with higher limits.
    """
    seeds, report = list(seeds), Report()
    configs = _configure_all(cells, seeds[0], out)
    say(at_most(cells, len(seeds)))
    for cell, config in zip(cells, configs, strict=True):
        known = elsewhere.finished(cell.codename, cell.problem) if elsewhere is not None else set()
        todo = _todo(cell.folder(out), [s for s in seeds if s not in known], config.limits, cell.name, say)
        if not todo:
            continue
        say(f"{cell.name}: {len(todo)} of {counted(len(seeds), 'seed')} to run")
        with watch(cell) as watcher:
            _run_cell(cell, config, todo, out, watcher, keep_checkpoints, report)
        if report.interrupted:
            break
        jax.clear_caches()  # the next cell has other programs
    return report


def _run_cell(
    cell: TableCell,
    config: RunConfig,
    seeds: Sequence[int],
    out: Path,
    watcher: Watcher,
    keep: bool,
    report: Report,
) -> None:
    folder, locks = cell.folder(out), out / ".locks"
    with contextlib.ExitStack() as held:
        mine = [s for s in seeds if held.enter_context(lock(locks / f"{cell.name}-{s}", wait=False))]
        busy = [s for s in seeds if s not in mine]
        if busy:
            report.busy[cell.name] = busy
        # Another process may have finished some since.
        mine = [s for s in mine if _standing(folder, s, config.limits) == "todo"]
        if not mine:
            return
        with lock(locks / cell.name, wait=True):
            prepare(folder, config.to_json(), mine)
        outcome = runs.execute(
            config,
            mine,
            folder,
            lambda n: _load(cell.problem, n),
            watcher=watcher,
            keep_checkpoints=keep,
            together=cell.together,
        )
    report.interrupted = outcome.interrupted
    if outcome.failed:
        report.failed[cell.name] = list(outcome.failed)
    done = [s for s in mine if s in outcome.run.finished]
    if done:
        report.ran[cell.name] = done


def _configure_all(cells: Sequence[TableCell], seed: int, out: Path) -> list[RunConfig]:
    """All configurations, so that errors are raised before any work."""
    loaded: dict[str, Problem] = {}
    for cell in cells:
        if cell.problem not in loaded:
            loaded[cell.problem] = _load(cell.problem, seed)
    configs = [
        runs.configure(loaded[cell.problem], cell.codename, preset="paper", dtype=DTYPE, limits=cell.limits)
        for cell in cells
    ]
    for cell, config in zip(cells, configs, strict=True):
        _check_same(cell.folder(out), config)
    return configs


def _check_same(folder: Path, config: RunConfig) -> None:
    if (folder / CONFIG).is_file():
        found = differences(read_config(folder), json.loads(json.dumps(config.to_json())), MAY_DIFFER)
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
            f"{name}: finished with another limit, and without checkpoints to continue from: "
            f"{numbered(short)}; to run them again, remove their folders."
        )
    return [seed for seed, how in standing.items() if how == "todo"]


def _standing(folder: Path, seed: int, limits: Limits) -> str:
    """Whether a seed is done, still to do, or ended short of these limits and cannot be continued."""
    if read_final(SeedFiles(folder, seed).final, seed) is None:  # a damaged file is an error
        return "todo"
    try:
        return "done" if is_finished(folder, seed, limits) else "todo"
    except ValueError:
        return "short"
