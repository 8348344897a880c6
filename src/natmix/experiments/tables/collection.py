"""The runs of a table, collected from all run directories under some folders."""

import dataclasses
import math
from collections.abc import Collection as Collection_
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natmix.estimate import counted
from natmix.experiments import presets
from natmix.experiments.runs import Run, SeedRun, find_runs, load_run
from natmix.experiments.tables import formatting
from natmix.experiments.tables.cells import available
from natmix.experiments.tables.saved_tables import DTYPE, SEEDS, UNFINISHED, SavedSeed, saved_runs

_MAY_DIFFER = ("database_size",)  # natmix's own choice

COPIES = (
    "If a seed was found in several folders, a finished run counts before an unfinished one, then the "
    "one with the most iterations; its -ELBO plays no part."
)
"""The rule for seeds that were run several times."""


@dataclasses.dataclass(frozen=True)
class Collection:
    """What was found.

    Attributes:
        runs: by codename and problem, the seeds of all directories together.
        notes: remarks for the reader of the table.
        copies: one line for each seed that was found several times, with the one that counts.
        tables: the folders whose table was read.
    """

    runs: dict[tuple[str, str], Run]
    notes: list[str]
    copies: list[str] = dataclasses.field(default_factory=list)
    tables: list[Path] = dataclasses.field(default_factory=list)

    def finished(self, codename: str, problem: str) -> set[int]:
        """The seeds with final numbers."""
        run = self.runs.get((codename, problem))
        return set() if run is None else set(run.finished)


def collect(
    folders: Sequence[Path], candidates: Iterable[str], problems: Iterable[str], *, unfinished: bool = False
) -> Collection:
    """Find the runs of these candidates on these problems under ``folders``.

    Seeds of an earlier table count too, if their run directories are gone. If a seed is found several times,
    one of them counts, as `COPIES` says. Runs with other hyperparameters than
    the paper's are left out. With ``unfinished``, unfinished seeds count as last evaluated.
    All this is noted.
    """
    names = list(problems)
    wanted = [(c, p) for c in candidates for p in names if available(c, p)]
    found: dict[tuple[str, str], list[tuple[str, Run]]] = {}
    notes: list[str] = []
    copies: list[str] = []
    for label, path in _directories(folders):
        try:
            run = load_run(path)
            key = (run.codename, run.problem)
        except (ValueError, KeyError) as error:
            notes.append(f"{label} was left out: it cannot be read as a run ({error}).")
            continue
        if key not in wanted:
            continue
        odd = _unlike_paper(run)
        if odd is not None:
            notes.append(f"{label} was left out: {odd}.")
        else:
            found.setdefault(key, []).append((label, run))
    tables = [folder for folder in {f.resolve(): None for f in folders} if (folder / SEEDS).is_file()]
    for folder in tables:
        for run in saved_runs(folder):
            key = (run.codename, run.problem)
            if key in wanted and not _among(run, found.get(key, [])):
                found.setdefault(key, []).append((f"{folder.name}/{run.path.name}", run))
    merged = {key: _merged(found[key], notes, copies, unfinished) for key in wanted if key in found}
    for run in merged.values():
        notes += _about(run)
    return Collection(merged, notes, copies, tables)


def _directories(folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """Every run directory once, with a name that does not depend on where the folders are."""
    out: dict[Path, tuple[str, Path]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder}.")
        top = folder.resolve()
        for path in find_runs(folder):
            label = Path(top.name, path.resolve().relative_to(top)).as_posix()
            out.setdefault(path.resolve(), (label, path))
    return list(out.values())


def _among(tabled: Run, found: Iterable[tuple[str, Run]]) -> bool:
    """Whether a seed of a table comes from one of these runs."""
    ((n, seed),) = tabled.seeds.items()
    return any(n in run.seeds and _alike(run.seeds[n], seed) for _, run in found)


def _alike(one: SeedRun, other: SeedRun) -> bool:
    """Whether two seeds ended with the same numbers, up to the digits that a table keeps."""
    one_end, other_end = _last(one), _last(other)
    same = bool(np.isclose(one_end, other_end, rtol=1e-8, equal_nan=True))
    return same and _standing(one) == _standing(other)


def _last(seed: SeedRun) -> float:
    evaluations = seed.metrics["neg_elbo"]
    return float(evaluations[-1]) if len(evaluations) else math.nan


def _unlike_paper(run: Run) -> str | None:
    """How a run's settings differ from the paper's, if they do."""
    config = run.config
    if config["preset"] != "paper":
        return f"it used the preset {config['preset']}, not paper"
    if config["covariance"] != "full":
        return f"it has {config['covariance']} covariances"
    if config["problem"]["options"]:
        return f"its problem has the options {config['problem']['options']}"
    preset = presets.paper(run.codename, run.problem)
    if config["start"]["components"] != preset.components:
        return f"it started with {config['start']['components']} components, not {preset.components}"
    for module, values in preset.overrides.items():
        for name, value in values.items():
            here = config["algorithm"]["settings"][module].get(name)
            if name not in _MAY_DIFFER and not _same(here, value):
                return f"its {module}.{name} is {here}, the paper's {value}"
    return None


def _same(here: Any, there: Any) -> bool:
    if isinstance(there, float) and isinstance(here, (int, float)):
        return math.isclose(here, there, rel_tol=1e-6, abs_tol=1e-12)
    return here == there


def _merged(found: list[tuple[str, Run]], notes: list[str], repeated: list[str], unfinished: bool) -> Run:
    seeds: dict[int, SeedRun] = {}
    interrupted: dict[int, int] = {}
    for n in sorted({n for _, run in found for n in run.seeds}):
        copies = [(label, run, run.seeds[n]) for label, run in found if n in run.seeds]
        label, run, best = max(copies, key=lambda copy: _standing(copy[2]))
        last = _as_last_evaluated(best, run) if unfinished else best
        if last is not best:
            interrupted[n] = _iterations(best)
        seeds[n] = _with_precision(last, run, notes)
        if len(copies) > 1:
            others = ", ".join(f"{other} ({_state(s)})" for other, _, s in copies if s is not best)
            repeated.append(
                f"{run.codename} on {run.problem}, seed {n}, was found {len(copies)} times: the one in "
                f"{label} ({_state(best)}) counts, not {others}."
            )
    first = found[0][1]
    if interrupted:
        verbs = ("was", "counts") if len(interrupted) == 1 else ("were", "count")
        notes.append(
            f"{first.codename} on {first.problem}: {formatting.numbered(interrupted)} {verbs[0]} not "
            f"finished and {verbs[1]} as last evaluated, after {_iteration_range(interrupted.values())}."
        )
    return Run(first.path, {**first.config, "seeds": list(seeds)}, first.environment, seeds)


def _iteration_range(iterations: Collection_[int]) -> str:
    """The smallest and the largest number of iterations."""
    few, most = min(iterations), max(iterations)
    return counted(few, "iteration") if few == most else f"{few:,} to {most:,} iterations"


def _as_last_evaluated(seed: SeedRun, run: Run) -> SeedRun:
    """An unfinished seed with its last evaluation in place of final numbers."""
    if isinstance(seed, SavedSeed):
        return seed if seed.final is not None else seed.with_final(seed.numbers)
    if seed.final is not None or seed.failure or not len(seed.metrics["iterations"]):
        return seed
    last = {name: values[-1].item() for name, values in seed.metrics.items()}
    about = {"limits": run.config["limits"], "device": run.environment.get("device", "unknown")}
    return seed.with_final({**last, "stopped": UNFINISHED, **about})


def _with_precision(seed: SeedRun, run: Run, notes: list[str]) -> SeedRun:
    """The seed with its float type beside the device, if it is not the usual one."""
    dtype = run.config["dtype"]
    if seed.final is None or dtype == DTYPE:
        return seed
    notes.append(f"{run.codename} on {run.problem}: seed {seed.seed} was run in {dtype}, not {DTYPE}.")
    return seed.with_final({**seed.final, "device": f"{seed.final['device']}, {dtype}"})


def _standing(seed: SeedRun) -> tuple[bool, int]:
    return seed.final is not None, _iterations(seed)


def _iterations(seed: SeedRun) -> int:
    iterations = seed.metrics["iterations"]
    return int(iterations[-1]) if len(iterations) else 0


def _seconds(seed: SeedRun) -> float:
    if seed.final is not None:
        return float(seed.final["seconds"])
    seconds = seed.metrics["seconds"]
    return float(seconds[-1]) if len(seconds) else 0.0


def _state(seed: SeedRun) -> str:
    kind = "finished" if seed.final is not None else "failed" if seed.failure else "unfinished"
    return f"{kind}, {counted(_iterations(seed), 'iteration')}, {_seconds(seed):.0f} s"


def _about(run: Run) -> list[str]:
    """What is unusual about the seeds of a run."""
    where = f"{run.codename} on {run.problem}"
    notes = []
    for n, seed in run.seeds.items():
        if seed.final is None and seed.failure:
            notes.append(f"{where}: seed {n} failed ({seed.failure['error']}) and is not included.")
        elif seed.final is None:
            notes.append(f"{where}: seed {n} has not finished ({_seconds(seed):.0f} s) and is not included.")
    finals = {n: seed.final for n, seed in run.finished.items() if seed.final is not None}
    unequal = []
    for name, kind in (("max_seconds", "with"), ("max_run_seconds", "without")):
        times = sorted({f["limits"].get(name) or math.inf for f in finals.values()})
        if len(times) > 1:
            several = ", ".join("none" if t == math.inf else f"{t:g} s" for t in times)
            unequal.append(f"{kind} compilation {several}")
    if unequal:
        notes.append(f"{where}: its seeds had different time limits ({'; '.join(unequal)}).")
    usual = presets.paper(run.codename, run.problem).max_iterations
    for n, final in finals.items():
        limits = final["limits"]
        others = (limits["max_evaluations"], limits["max_iterations"], limits["until"])
        if others != (None, usual, None):
            notes.append(f"{where}: seed {n} had other limits than its time and the paper's iterations.")
        if not math.isfinite(final["neg_elbo"]):
            notes.append(f"{where}: seed {n} ended with an -ELBO of {final['neg_elbo']}.")
    return notes
