"""Checkpoints of a fit: everything that it needs to go on as if nothing had happened, in one sealed file."""

import contextlib
import functools
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import jax
import numpy as np
from jaxtyping import Float

from natmix.engine.accuracy import StoredAccuracyRule
from natmix.engine.checkpoint_schedule import CHECKPOINT_SECONDS, CheckpointSchedule
from natmix.engine.convergence import StoredBest, StoredConvergence
from natmix.engine.limits import is_number
from natmix.engine.progress_file import PROGRESS, ProgressFile
from natmix.engine.recorder import Recorder
from natmix.engine.runner import Chunk
from natmix.engine.single_run import SingleRun
from natmix.engine.state_file import check_state, group, grouped, state_arrays, stored_state
from natmix.engine.verifier import StoredMidwayCheck, StoredVerifier
from natmix.files.arrays import SealedArrays, read_arrays, write_arrays
from natmix.files.differences import differences
from natmix.files.durable import check_writable, remove_leftovers
from natmix.files.generations import exists, newest, previous, set_aside
from natmix.files.json_text import exact_json, parse_exact_json
from natmix.files.lock import lock
from natmix.files.saving import Saving
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import FIT_CHECKPOINT, DamagedFileError
from natmix.files.versions import versions
from natmix.gmmvi import GMMVI
from natmix.initialization.starts.base import Initialization
from natmix.kernels.plan import default_device
from natmix.mixture import Mixture
from natmix.mixture.files import built_mixture, mixture_tensors
from natmix.modules.state import State
from natmix.targets import AbstractTarget, TargetError

logger = logging.getLogger("natmix")

Resume = bool | Literal["anyway"]
STATE, RESULT, LOCK = "state.safetensors", "result.safetensors", ".lock"
"""The files in the folder of a checkpoint."""
_FIRST, _REGION, _BEST, _TRAJECTORY = "first.", "region.", "best.", "trajectory."
_LEAF = "leaf"
_POINTS = 4
"""At so many points values of the target are compared; at one of them for a target outside JAX."""
_SAME = {"float32": 1e-5, "float64": 1e-9}
"""Values of one target differ by less than this share between machines."""
_SHOWN = 3


class FitOwner(TypedDict):
    """Whose checkpoint it is: what must be the same for the numbers to be the same."""

    settings: dict[str, Any]
    software: dict[str, str]
    target: list[float]


class Before(TypedDict):
    """What the fit did before its first iteration, the mixtures left out."""

    family: str
    region_family: str | None
    evaluations: int
    probes: int
    note: str
    seconds: float


class StoredCounters(TypedDict):
    """How far the run is (`SingleRun.progress`)."""

    iterations: int
    evaluations: int
    seconds: float
    compile_seconds: float
    components: int
    rate: float


class StoredFit(TypedDict):
    """What a `SingleFit` knows, arrays left out."""

    progress: StoredCounters
    stopped: str | None
    pauses: int
    increases: int
    refuted: int
    compiling: float
    running: float
    verifying: float
    rule: StoredConvergence
    accuracy: StoredAccuracyRule
    best: StoredBest
    midway: StoredMidwayCheck
    verifier: StoredVerifier | None


class FitRecords(NamedTuple):
    """What a `SingleFit` knows."""

    numbers: StoredFit
    best: Mixture
    trajectory: dict[str, np.ndarray]


class Begun(NamedTuple):
    """A fit that was begun.

    Attributes:
        first: its initial mixture.
        probes: evaluations spent to find out what kind of function the target is, and to check it.
        seconds: it took until the first iteration.
    """

    first: Initialization
    probes: int
    seconds: float


class Loaded(NamedTuple):
    """A checkpoint that was read.

    Attributes:
        owner: whose checkpoint it is.
        begun: what the fit did before its first iteration.
        records: what it knows.
        state: of the run.
    """

    owner: FitOwner
    begun: Begun
    records: FitRecords
    state: State


_ANEW = "give another folder as checkpoint, or resume=False to begin anew"


class FitCheckpoints:
    """The folder with the checkpoints of one fit.

    Args:
        folder: made if it does not exist; the one above it must.
        seconds: between checkpoints.
        resume: whether to go on from what is there; "anyway" even if it is of another fit.

    Attributes:
        progress: what is shown of the fit while it runs.
    """

    def __init__(
        self, folder: str | Path, seconds: float = CHECKPOINT_SECONDS, resume: Resume = True
    ) -> None:
        if resume not in (True, False, "anyway"):
            raise ValueError(f"resume must be True, False or 'anyway', got {resume!r}.")
        if not (is_number(seconds) and seconds >= 0):
            raise ValueError(f"checkpoint_seconds must be a number, not negative, got {seconds!r}.")
        self.folder = Path(folder).absolute()
        self.resume = resume
        self._path, self._result = self.folder / STATE, self.folder / RESULT
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"checkpoint={str(folder)!r} is a file; name a folder.")
        if not self.folder.parent.is_dir():
            raise FileNotFoundError(
                f"The folder {self.folder.parent} does not exist; create it before fitting."
            )
        self._saving = Saving(self.folder, self._restore)
        self._schedule = CheckpointSchedule(seconds, False)
        self._about: tuple[dict[str, str], dict[str, np.ndarray]] = {}, {}
        self.progress = ProgressFile(self.folder / PROGRESS, self._saving.attempt)

    @contextlib.contextmanager
    def held(self) -> Iterator["FitCheckpoints"]:
        """No other process may write there meanwhile."""
        self.folder.mkdir(exist_ok=True)
        check_writable(self.folder)
        with lock(self.folder / LOCK, wait=False) as free:
            if not free:
                raise ValueError(
                    f"Another fit is writing its checkpoints to {self.folder}; wait for it, or give "
                    "another folder."
                )
            remove_leftovers(self.folder)
            yield self

    def _restore(self) -> None:
        """Make the folder again if it is gone, but not the one above."""
        self.folder.mkdir(exist_ok=True)

    # Reading ------------------------------------------------------------------------------------

    def load(self, owner: FitOwner, dtype: Any, algorithms: Sequence[GMMVI]) -> Loaded | None:
        """The newest checkpoint that is whole; None if the fit is to begin.

        Args:
            owner: whose checkpoint it must be.
            dtype: of the computation.
            algorithms: of the fit, one after another.

        Raises:
            ValueError: it is of another fit.
            DamagedFileError: no generation is whole.
        """
        if self.resume is False or not exists(self._path):
            self._forget()
            return None

        def read(path: Path) -> Loaded:
            return read_fit_checkpoint(path, algorithms, None if self.resume == "anyway" else owner, dtype)

        try:
            found, why = newest(self._path, read)
        except DamagedFileError as error:
            raise DamagedFileError(f"{error} To begin the fit anew, remove {self.folder}.") from error
        if why:
            logger.warning(
                "The fit goes on from the checkpoint before the last, after %d iterations: %s",
                found.records.numbers["progress"]["iterations"],
                why,
            )
            set_aside(self._path)
        if found.owner["settings"] != _plain(owner["settings"]):
            self._result.unlink(missing_ok=True)
        self._schedule.done(0.0, True)
        return found

    @property
    def finished(self) -> Path | None:
        """The result of the fit, if it has ended by itself or by a limit."""
        return self._result if self._result.is_file() else None

    def _forget(self) -> None:
        for path in (self._result, self._path, previous(self._path), self.folder / PROGRESS):
            path.unlink(missing_ok=True)

    # Writing ------------------------------------------------------------------------------------

    def begin(self, owner: FitOwner, begun: Begun) -> None:
        """Note what every checkpoint of this fit holds."""
        first = begun.first
        before = Before(
            family=first.mixture.covariance_family,
            region_family=None if first.prior is None else first.prior.covariance_family,
            evaluations=first.evaluations,
            probes=begun.probes,
            note=first.note,
            seconds=begun.seconds,
        )
        arrays = grouped(_FIRST, _mixture_arrays(first.mixture))
        if first.prior is not None:
            arrays |= grouped(_REGION, _mixture_arrays(first.prior))
        self._about = {"owner": exact_json(owner), "before": exact_json(before)}, arrays

    def recorder(self, records: Callable[[SingleRun], FitRecords]) -> "CheckpointsOfFit":
        """Writes the checkpoints of a run; ``records`` gives what else is known."""
        return CheckpointsOfFit(self, records)

    def save(self, run: SingleRun, records: FitRecords) -> None:
        """Write a checkpoint now, if that is possible."""
        with run.clock.pause():
            before = time.perf_counter()
            about, arrays = self._about
            state, keys = state_arrays(run.state)
            arrays = arrays | state | grouped(_TRAJECTORY, records.trajectory)
            arrays |= grouped(_BEST, _mixture_arrays(records.best))
            header = {**keys, **about, "fit": exact_json(records.numbers)}
            write = functools.partial(
                write_arrays, self._path, FIT_CHECKPOINT, arrays, header, previous(self._path)
            )
            written = self._saving.attempt(write)
            self._schedule.done(time.perf_counter() - before, written)

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._schedule.due()

    @property
    def affordable(self) -> bool:
        """Whether one more would cost little."""
        return self._schedule.affordable()

    def keep_result(self, save: Callable[[Path], None]) -> None:
        """Write the result of the fit, if that is possible: the same call then only reads it."""
        self._saving.attempt(lambda: save(self._result))


class CheckpointsOfFit(Recorder):
    """Writes a checkpoint when it is due, and where the run pauses or ends.

    When is a matter of the clock; a checkpoint changes no number of the fit.
    """

    def __init__(self, files: FitCheckpoints, records: Callable[[SingleRun], FitRecords]) -> None:
        self._files, self._records = files, records

    def chunk(self, run: SingleRun, chunk: Chunk) -> None:
        if run.stopped is None and self._files.due:
            self.save(run)

    def finished(self, run: SingleRun) -> None:
        if self._files.affordable:
            self.save(run)

    def save(self, run: SingleRun) -> None:
        """Write one now."""
        self._files.save(run, self._records(run))


# Whose checkpoint it is ---------------------------------------------------------------------------


def owner_of(settings: Mapping[str, Any], mixture: Mixture | None, values: list[float]) -> FitOwner:
    """The owner of a fit's checkpoints.

    Args:
        settings: of the fit.
        mixture: that the user has given to start from.
        values: of the target (`target_values`).
    """
    digest = None
    if mixture is not None:
        found = hashlib.sha256()
        for array in mixture_tensors(jax.device_get(mixture)).values():
            found.update(np.ascontiguousarray(array).tobytes())
        digest = found.hexdigest()
    software = {**versions(), "device": default_device().platform}
    software["python"] = ".".join(software["python"].split(".")[:2])
    return FitOwner(settings={**settings, "init_mixture": digest}, software=software, target=values)


def target_values(target: AbstractTarget, region: Mixture) -> list[float]:
    """Values of the target by which it is recognised; one for each of `_POINTS`, or one outside JAX."""
    n = _POINTS if target.inside_jax else 1
    centre = np.asarray(region.mean(), float)
    spread = np.sqrt(np.diagonal(np.asarray(region.covariance(), float)))
    steps = np.random.default_rng(0).normal(size=(n, target.dim)) * np.arange(n)[:, None] / _POINTS
    points = jax.numpy.asarray(centre + steps * spread, region.dtype)
    return [float(v) for v in _values(target, points)]


def _values(target: AbstractTarget, points: Any) -> Float[np.ndarray, " N"]:
    try:
        found = target.evaluate(jax.random.key(0), points, len(points), needs_gradient=False)
    except TargetError:
        return np.full(len(points), np.nan)
    return np.asarray(found.log_density, float)


def _check_owner(path: Path, there: FitOwner, here: FitOwner) -> None:
    for what in ("settings", "software"):
        found = differences(there[what], _plain(here[what]))
        if found:
            shown = ", ".join(f"{name} {_short(a)}, not {_short(b)}" for name, a, b in found[:_SHOWN])
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            of = "made with" if what == "software" else "of a fit with"
            raise ValueError(f"{path} is {of} {shown}{more}; {_OR_ANYWAY}")
    dtype = str(here["settings"].get("dtype", "float32"))
    a, b = np.array(there["target"]), np.array(here["target"])
    same = a.shape == b.shape and np.allclose(a, b, rtol=_SAME.get(dtype, 1e-5), atol=0, equal_nan=True)
    if not same:
        raise ValueError(
            f"{path} is of another target, or of other data: log densities are {_few(a)} there and "
            f"{_few(b)} here; {_OR_ANYWAY}"
        )


_OR_ANYWAY = (
    "give another folder as checkpoint, resume=False to begin anew, or resume='anyway' to go on with it."
)


def _few(values: np.ndarray) -> str:
    return ", ".join(f"{v:.9g}" for v in values[:2])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _plain(value: Any) -> Any:
    """As it comes back from a file."""
    return parse_exact_json(exact_json(value))


# The content --------------------------------------------------------------------------------------


def _entry(path: Path, content: SealedArrays, name: str, hint: Any) -> Any:
    try:
        return conform(hint, parse_exact_json(content.metadata.get(name, "")), name)
    except (SchemaError, ValueError, RecursionError) as error:
        what = error if isinstance(error, SchemaError) else f"its entry {name!r} is no JSON"
        raise DamagedFileError(f"{path} is damaged: {what}.") from error


def read_fit_checkpoint(
    path: Path, algorithms: Sequence[GMMVI], owner: FitOwner | None, dtype: Any = None
) -> Loaded:
    """What a file holds, checked.

    Args:
        path: of the file.
        algorithms: of the fit, one after another.
        owner: whose checkpoint it must be; None if that does not matter.
        dtype: of the computation; that of the file if left out.
    """
    content = read_arrays(path, FIT_CHECKPOINT)
    there: FitOwner = _entry(path, content, "owner", FitOwner)
    if owner is not None:
        _check_owner(path, there, owner)
    before: Before = _entry(path, content, "before", Before)
    numbers: StoredFit = _entry(path, content, "fit", StoredFit)
    _check_numbers(path, before, numbers)

    def mixture(prefix: str, family: str) -> Mixture:
        return _mixture(path, group(content, prefix), family, dtype)

    family = before["region_family"]
    prior = None if family is None else mixture(_REGION, family)
    first = Initialization(mixture(_FIRST, before["family"]), prior, before["evaluations"], before["note"])
    trajectory = group(content, _TRAJECTORY)
    progress = numbers["progress"]
    if any(a.shape != (progress["iterations"],) for a in trajectory.values()):
        raise DamagedFileError(
            f"{path} is damaged: its trajectory is not of {progress['iterations']} iterations."
        )
    if numbers["increases"] >= len(algorithms):
        raise ValueError(f"{path} is of a fit with more steps of more_samples; {_ANEW}.")
    state = stored_state(path, content, algorithms[numbers["increases"]], first.mixture, prior, _ANEW)
    check_state(path, state, progress["iterations"], progress["components"])
    records = FitRecords(numbers, mixture(_BEST, before["family"]), trajectory)
    return Loaded(there, Begun(first, before["probes"], before["seconds"]), records, state)


def _mixture_arrays(mixture: Mixture) -> dict[str, np.ndarray]:
    """Its parameters, and all leaves of the tree: what is computed again may be rounded differently."""
    leaves = enumerate(jax.tree.leaves(jax.device_get(mixture)))
    return mixture_tensors(mixture) | {f"{_LEAF}{i}": np.asarray(leaf) for i, leaf in leaves}


def _mixture(path: Path, stored: Mapping[str, np.ndarray], family: str, dtype: Any) -> Mixture:
    try:
        built = jax.device_get(built_mixture(family, stored, dtype, path))
    except DamagedFileError:
        raise
    except ValueError as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    leaves, structure = jax.tree.flatten(built)
    exact = [stored.get(f"{_LEAF}{i}", np.zeros(0)) for i in range(len(leaves))]
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(exact, leaves, strict=True)):
        raise DamagedFileError(f"{path} is damaged: the arrays of a mixture have other shapes or types.")
    if not all(_agree(a, np.asarray(b)) for a, b in zip(exact, leaves, strict=True)):
        raise DamagedFileError(f"{path} is damaged: the arrays of a mixture contradict each other.")
    return jax.tree.unflatten(structure, exact)


def _agree(stored: np.ndarray, built: np.ndarray) -> bool:
    """Whether two arrays are equal but for rounding."""
    there, here = stored.astype(float), built.astype(float)
    finite = np.isfinite(here)
    if not np.array_equal(there[~finite], here[~finite], equal_nan=True):
        return False
    largest = np.max(np.abs(here[finite]), initial=0.0)
    return bool(np.all(np.abs(there[finite] - here[finite]) <= _ROUNDING * largest))


_ROUNDING = 1e-3
"""By how much of an array's largest entry its entries may differ from those computed again."""


def _check_numbers(path: Path, before: Before, numbers: StoredFit) -> None:
    counts = {**numbers["progress"], **{k: numbers[k] for k in _COUNTS}}  # type: ignore[literal-required]
    counts |= {k: before[k] for k in ("evaluations", "probes", "seconds")}
    for name, value in counts.items():
        if not value >= 0:
            raise DamagedFileError(f"{path} is damaged: {name} must not be negative, got {value}.")


_COUNTS = ("pauses", "increases", "refuted", "compiling", "running", "verifying")
