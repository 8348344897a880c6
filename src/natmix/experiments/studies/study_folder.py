"""The folder of a study: what is planned, who runs what, and how each trial ended.

::

    STUDY/study.json                  the study file and the options that changed it
    STUDY/plans/CELL/0000.json        settings of a codename on a problem, a batch in each file
    STUDY/trials/000012/attempts.jsonl  beginnings and ends of attempts at a trial
    STUDY/trials/000012/run/          its run directory
    STUDY/trials/000012/outcome.json  how it ended; a trial with this file is never run again
    STUDY/optuna.log, optuna.db       what Optuna's dashboard shows

Several processes may use a folder at once. Files appear in one step; `planning` and `claim` are locks that
end with the process that holds them.
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from natmix.experiments.studies.definition import CellKey, Study, StudySource
from natmix.experiments.studies.study_file import study_from
from natmix.experiments.studies.trial_runner import Setting
from natmix.files.differences import differences
from natmix.files.durable import check_writable
from natmix.files.lock import lock
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import STUDY, STUDY_PLAN, TRIAL_OUTCOME, DamagedFileError
from natmix.files.sealed_json import read_sealed_json, write_sealed_json

STUDY_FILE = "study.json"
_BATCH = re.compile(r"(\d{4,})\.json")


@dataclasses.dataclass(frozen=True)
class PlannedBatch:
    """Settings of one codename on one problem that were chosen together.

    Attributes:
        settings: by name.
        bars: for each, the -ELBO above which it is pruned at the end of each part of the budget; None: never.
        stored: their numbers in Optuna's storage; none if there is no storage.
    """

    settings: list[dict[str, Setting]]
    bars: list[list[float | None]]
    stored: list[int]


State = Literal["complete", "pruned", "failed"]


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended.

    Attributes:
        number: of the trial.
        state: "complete", "pruned" or "failed".
        value: of the objective; None for a failed trial.
        neg_elbo: of the last evaluation.
        neg_elbo_se: its standard error.
        iterations: done.
        evaluations: of the target.
        seconds: on the trial's clock.
        compile_seconds: of these.
        components: of the final mixture.
        attempts: that were begun.
        reason: why it stopped or failed.
        curve: the smallest -ELBO by the end of each part of the budget, as far as it came.
    """

    number: int
    state: State
    value: float | None
    neg_elbo: float | None
    neg_elbo_se: float | None
    iterations: int
    evaluations: int
    seconds: float
    compile_seconds: float
    components: int
    attempts: int
    reason: str
    curve: list[float | None]


class Attempt(NamedTuple):
    """A beginning or an end of an attempt at a trial.

    Attributes:
        event: "begin", "error" or "interrupted"; an attempt without end was killed, or is going on.
        iterations: that were done before, of a beginning.
        reason: of an end.
        process: who, for people.
    """

    event: str
    iterations: int
    reason: str
    process: str


class StudyFolder:
    """The folder of a study.

    Attributes:
        path: of the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # The study ----------------------------------------------------------------------------------

    def create(self, study: Study) -> Study:
        """Make the folder, or find that it is of this study; returns the one with more trials.

        Raises:
            ValueError: it is of another study.
        """
        assert study.source is not None
        check_writable(self.path)
        with self.planning():
            if not (self.path / STUDY_FILE).is_file():
                others = [child for child in self.path.iterdir() if not child.name.startswith(".")]
                if others:
                    raise ValueError(f"{self.path} holds other files and no study; choose another --out.")
                self._write(study.source)
                return study
            there = self.study()
            self._check_same(there, study)
            before, now = there.search.trials, study.search.trials
            if now is not None and before is not None and now > before:
                self._write(study.source)
                return study
            return there

    def study(self) -> Study:
        """The study of this folder."""
        file = self.path / STUDY_FILE
        if not file.is_file():
            raise FileNotFoundError(2, "there is no study here; `natmix study run` makes one", str(self.path))
        return study_from(read_source(file))

    def _write(self, source: StudySource) -> None:
        content = {**source._asdict(), "changes": dataclasses.asdict(source.changes)}
        write_sealed_json(self.path / STUDY_FILE, STUDY, content)

    def _check_same(self, there: Study, here: Study) -> None:
        found = differences(comparable(there), comparable(here), ())
        if found:
            name, before, now = found[0]
            raise ValueError(
                f"{self.path} holds another study: {name} is {before} there and {now} here; choose another "
                "--out."
            )

    @contextlib.contextmanager
    def planning(self) -> Iterator[None]:
        """Wait until no other process plans trials."""
        with lock(self.path / ".lock", wait=True):
            yield

    # Plans --------------------------------------------------------------------------------------

    def batch_file(self, cell: CellKey, batch: int) -> Path:
        """Where a batch is written."""
        return self.path / "plans" / str(cell) / f"{batch:04d}.json"

    def batches(self, cell: CellKey) -> int:
        """How many batches there are of a cell."""
        folder = self.path / "plans" / str(cell)
        names = os.listdir(folder) if folder.is_dir() else []
        return sum(_BATCH.fullmatch(name) is not None for name in names)

    def write_batch(self, cell: CellKey, batch: int, planned: PlannedBatch) -> None:
        """Plan a batch; what is planned is never changed."""
        path = self.batch_file(cell, batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed_json(path, STUDY_PLAN, dataclasses.asdict(planned))

    def read_batch(self, cell: CellKey, batch: int) -> PlannedBatch:
        """A batch that was planned."""
        return read_plan(self.batch_file(cell, batch))

    # Trials -------------------------------------------------------------------------------------

    def trial(self, number: int) -> Path:
        """The folder of a trial."""
        return self.path / "trials" / f"{number:06d}"

    def run_folder(self, number: int) -> Path:
        """Its run directory."""
        return self.trial(number) / "run"

    @contextlib.contextmanager
    def claim(self, number: int) -> Iterator[bool]:
        """Be the only process that runs a trial, or find that another one is."""
        with lock(self.trial(number) / ".lock", wait=False) as mine:
            yield mine

    def is_claimed(self, number: int) -> bool:
        """Whether a process is running a trial now."""
        if not (self.trial(number) / ".lock").is_file():
            return False
        with self.claim(number) as mine:
            return not mine

    def outcome(self, number: int) -> TrialOutcome | None:
        """How a trial ended, None if it has not."""
        path = self.trial(number) / "outcome.json"
        return read_outcome(path) if path.is_file() else None

    def write_outcome(self, outcome: TrialOutcome) -> None:
        """Write down how a trial ended."""
        path = self.trial(outcome.number) / "outcome.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed_json(path, TRIAL_OUTCOME, dataclasses.asdict(outcome))

    def attempts(self, number: int) -> list[Attempt]:
        """Beginnings and ends of attempts; a line that was cut off by a kill is left out."""
        path = self.trial(number) / "attempts.jsonl"
        if not path.is_file():
            return []
        found = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                found.append(Attempt(**json.loads(line)))
        return found

    def note(self, number: int, attempt: Attempt) -> None:
        """Add a beginning or an end; the trial must be claimed."""
        path = self.trial(number) / "attempts.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        # A line that was cut off ends here.
        start = "\n" if path.is_file() and not path.read_bytes().endswith(b"\n") else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{start}{json.dumps(attempt._asdict())}\n")
            file.flush()
            os.fsync(file.fileno())


def comparable(study: Study) -> dict[str, Any]:
    """What of a study may not change while it runs, as plain data."""
    spaces = {str(cell): _plain(space) for cell, space in study.spaces.items()}
    problems = {name: _plain(dataclasses.asdict(problem)) for name, problem in study.problems.items()}
    kept = {
        "problem": problems,
        "space": spaces,
        "seeds": list(study.seeds),
        "preset": study.preset,
        "covariance": study.covariance,
        "dtype": study.dtype,
        "search": {**dataclasses.asdict(study.search), "trials": None},
        "pruner": dataclasses.asdict(study.pruning),
        "objective": dataclasses.asdict(study.objective),
        "storage": study.storage,
    }
    plain: dict[str, Any] = json.loads(json.dumps(kept))
    return plain


def joint_study(parts: Sequence[tuple[StudyFolder, Study]]) -> Study:
    """One study with the problems, codenames and seeds of all, which were run in several folders.

    Raises:
        ValueError: they do not agree in what they share.
    """
    (first, study), *others = parts
    for folder, other in others:
        found = [("name", study.name, other.name)] if study.name != other.name else []
        there, here = comparable(study), comparable(other)
        for shared in ("problem", "space"):
            for name in there[shared].keys() ^ here[shared].keys():
                there[shared].pop(name, None)
                here[shared].pop(name, None)
        found += differences(there, here, ("seeds", "storage"))
        if found:
            name, before, now = found[0]
            raise ValueError(
                f"{folder.path} holds another study than {first.path}: {name} is {now} there and {before} "
                "here; only folders of one study can be put together."
            )
        trials = [each.search.trials for each in (study, other) if each.search.trials is not None]
        study = dataclasses.replace(
            study,
            problems={**other.problems, **study.problems},
            codenames=tuple(dict.fromkeys((*study.codenames, *other.codenames))),
            spaces={**study.spaces, **other.spaces},
            seeds=tuple(dict.fromkeys((*study.seeds, *other.seeds))),
            search=dataclasses.replace(study.search, trials=max(trials, default=None)),
        )
    return study


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def read_source(path: Path) -> StudySource:
    """What a ``study.json`` holds: a study file, and how it was changed."""
    content = read_sealed_json(path, STUDY)[0]
    changes = content.get("changes")
    for name in ("problems", "codenames", "seeds"):
        if isinstance(changes, dict) and isinstance(changes.get(name), list):
            changes[name] = tuple(changes[name])
    source: StudySource = _read(path, StudySource, content)
    return source


def read_plan(path: Path) -> PlannedBatch:
    """A batch of settings."""
    planned: PlannedBatch = _read(path, PlannedBatch, read_sealed_json(path, STUDY_PLAN)[0])
    return planned


def read_outcome(path: Path) -> TrialOutcome:
    """How a trial ended."""
    outcome: TrialOutcome = _read(path, TrialOutcome, read_sealed_json(path, TRIAL_OUTCOME)[0])
    return outcome


def _read(path: Path, kind: Any, content: dict[str, Any]) -> Any:
    try:
        return conform(kind, content, "")
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error
