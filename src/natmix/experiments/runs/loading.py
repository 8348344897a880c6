"""Reading a run directory, finished or not."""

import dataclasses
import functools
import json
import zipfile
import zlib
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from natmix.experiments.runs.directory import CONFIG, ENVIRONMENT, SeedFiles, read_json, seeds_in
from natmix.experiments.runs.history import WeightHistory
from natmix.files import with_nan
from natmix.mixture import Mixture

EVALUATION_NUMBERS = (
    "seconds",
    "compile_seconds",
    "iterations",
    "evaluations",
    "components",
    "neg_elbo",
    "neg_elbo_se",
    "zero_share",
    "invalid_share",
)
"""What an evaluation of the ELBO writes down."""

_CONFIG_NUMBERS = ("problem", "algorithm", "start", "preset", "covariance", "dtype", "limits", "seeds")
_FINAL_NUMBERS = (
    "neg_elbo",
    "neg_elbo_se",
    "iterations",
    "evaluations",
    "seconds",
    "compile_seconds",
    "components",
    "stopped",
    "limits",
    "device",
)


@dataclasses.dataclass(frozen=True)
class SeedRun:
    """What one seed did.

    Attributes:
        seed: its number.
        metrics: evaluations of the ELBO: seconds, compile_seconds, iterations, evaluations, components,
            neg_elbo, neg_elbo_se, ... as arrays over the evaluations.
        trace: every field of `natmix.Info`, and the run's clock ``seconds``, over the iterations.
        weights: component weights over time.
        mixture: the final mixture.
        final: final numbers, None while it runs.
        failure: what went wrong (``error``, ``iterations``, ...), if it failed.
    """

    seed: int
    metrics: dict[str, np.ndarray]
    trace: dict[str, np.ndarray]
    weights: WeightHistory
    mixture: Mixture
    final: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None

    def with_final(self, final: dict[str, Any]) -> "SeedRun":
        """The same with other final numbers."""
        return dataclasses.replace(self, final=final)


class StoredSeedRun(SeedRun):
    """The same, each part read from its file when it is first asked for."""

    _files: SeedFiles

    def __init__(self, files: SeedFiles, seed: int) -> None:
        object.__setattr__(self, "seed", seed)
        object.__setattr__(self, "_files", files)

    def with_final(self, final: dict[str, Any]) -> SeedRun:
        other = StoredSeedRun(self._files, self.seed)
        other.__dict__["final"] = final
        return other

    def __repr__(self) -> str:
        return f"StoredSeedRun({str(self._files.folder)!r})"

    @functools.cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        return read_metrics(self._files.metrics)

    @functools.cached_property
    def trace(self) -> dict[str, np.ndarray]:
        return read_arrays(self._files.trace)

    @functools.cached_property
    def weights(self) -> WeightHistory:
        return read_weights(self._files.weights)

    @functools.cached_property
    def mixture(self) -> Mixture:
        path = self._files.mixture
        if not path.is_file():
            raise FileNotFoundError(f"Seed {self.seed} has no final mixture: it has not finished ({path}).")
        return Mixture.load(path)

    @functools.cached_property
    def final(self) -> dict[str, Any] | None:
        return read_final(self._files.final)

    @functools.cached_property
    def failure(self) -> dict[str, Any] | None:
        return _json_or_none(self._files.failed)


@dataclasses.dataclass(frozen=True)
class Run:
    """One problem, one algorithm, any number of seeds.

    Attributes:
        path: the directory.
        config: the contents of ``config.json``.
        environment: the contents of ``environment.json``.
        seeds: those that have started, by number.
    """

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    seeds: dict[int, SeedRun]

    @property
    def problem(self) -> str:
        """Name of the problem."""
        return self.config["problem"]["name"]

    @property
    def codename(self) -> str:
        """Name of the algorithm."""
        return self.config["algorithm"]["codename"]

    @property
    def finished(self) -> dict[int, SeedRun]:
        """The seeds with final numbers."""
        return {n: seed for n, seed in self.seeds.items() if seed.final is not None}


def load_run(path: str | Path) -> Run:
    """Read a run directory; what is large is read when it is first used."""
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"There is no run directory {path}.")
    if not (path / CONFIG).is_file():
        raise ValueError(f"{path} is no run directory: it has no {CONFIG}; `natmix run` writes one.")
    config = read_json(path / CONFIG)
    if config.get("format") != 1:
        raise ValueError(
            f"{path} was written by another version of natmix, whose format this one cannot read."
        )
    _check_complete(path / CONFIG, config, _CONFIG_NUMBERS)
    seeds: dict[int, SeedRun] = {n: StoredSeedRun(SeedFiles(path, n), n) for n in seeds_in(path)}
    return Run(path, config, _json_or_none(path / ENVIRONMENT) or {}, seeds)


def find_runs(under: str | Path) -> list[Path]:
    """Run directories below a folder, by name."""
    under = Path(under)
    return sorted(p.parent for p in under.rglob(CONFIG)) if under.is_dir() else []


def read_evaluations(path: Path) -> list[dict[str, Any]]:
    """The evaluations of the ELBO in a file, one dictionary each."""
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is damaged: a line holds no JSON object.")
    return [with_nan(row) for row in rows]


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """The evaluations of the ELBO in a file, one array per name."""
    rows = read_evaluations(path)
    for row in rows[1:]:
        _check_complete(path, row, rows[0])
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else EVALUATION_NUMBERS)}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz``, none if it is not there yet."""
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            return dict(file)
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: it is no .npz file with arrays.") from error


def read_weights(path: Path) -> WeightHistory:
    """The weights over time, none if they are not there yet."""
    arrays = read_arrays(path)
    if not arrays:
        return WeightHistory.from_rows([])
    _check_complete(path, arrays, (f.name for f in dataclasses.fields(WeightHistory)))
    return WeightHistory(**arrays)


def read_final(path: Path) -> dict[str, Any] | None:
    """A seed's final numbers, None if they are not there yet."""
    final = _json_or_none(path)
    if final is None:
        return None
    _check_complete(path, final, _FINAL_NUMBERS)
    return with_nan(final)


def _check_complete(path: Path, found: Container[str], needed: Iterable[str]) -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        raise ValueError(f"{path} is damaged: there is no {missing[0]!r} in it.")


def _json_or_none(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.is_file() else None
