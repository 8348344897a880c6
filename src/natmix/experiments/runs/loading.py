"""Reading a run directory, finished or not."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from natmix.experiments.runs.checkpoint import Records, load_records
from natmix.experiments.runs.directory import (
    CONFIG,
    ENVIRONMENT,
    SeedFiles,
    fingerprint,
    read_config,
    seeds_in,
)
from natmix.experiments.runs.history import WeightHistory, read_trace, read_weights
from natmix.experiments.runs.rows import (
    ABOUT,
    as_arrays,
    check_digest,
    read_evaluations,
    read_failure,
    read_final,
)
from natmix.files.generations import exists
from natmix.files.seal import ENVIRONMENT as ENVIRONMENT_FORMAT
from natmix.files.sealed_json import read_sealed_json
from natmix.mixture import Mixture
from natmix.mixture.files import read_mixture

T = TypeVar("T")


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
    """The same, each part read from its file when it is first asked for.

    Until the seed has finished, trace and weights are those of its checkpoint.
    """

    _files: SeedFiles
    _run: str

    def __init__(self, files: SeedFiles, seed: int, run: str) -> None:
        object.__setattr__(self, "seed", seed)
        object.__setattr__(self, "_files", files)
        object.__setattr__(self, "_run", run)

    def with_final(self, final: dict[str, Any]) -> SeedRun:
        other = StoredSeedRun(self._files, self.seed, self._run)
        other.__dict__["final"] = final
        return other

    def __repr__(self) -> str:
        return f"StoredSeedRun({str(self._files.folder)!r})"

    @functools.cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        path = self._files.metrics
        return as_arrays(read_evaluations(path, self._digest(path)))

    @functools.cached_property
    def trace(self) -> dict[str, np.ndarray]:
        if self._final is None:
            return {} if self._records is None else self._records.trace
        return self._checked(self._files.trace, read_trace)

    @functools.cached_property
    def weights(self) -> WeightHistory:
        if self._final is None:
            return WeightHistory.from_rows([]) if self._records is None else self._records.weights
        return self._checked(self._files.weights, read_weights)

    @functools.cached_property
    def mixture(self) -> Mixture:
        path = self._files.mixture
        if self._final is None:
            raise FileNotFoundError(f"Seed {self.seed} has no final mixture: it has not finished ({path}).")
        return self._checked(path, read_mixture)

    @functools.cached_property
    def final(self) -> dict[str, Any] | None:
        found = self._final
        return None if found is None else {name: value for name, value in found.items() if name != ABOUT}

    @functools.cached_property
    def failure(self) -> dict[str, Any] | None:
        return read_failure(self._files.failed)

    @functools.cached_property
    def _final(self) -> dict[str, Any] | None:
        return read_final(self._files.final, self.seed, self._run)

    @functools.cached_property
    def _records(self) -> Records | None:
        path = self._files.checkpoint
        return load_records(path) if exists(path) else None

    def _digest(self, path: Path) -> str | None:
        """The checksum that a file must have: the final numbers name it."""
        return None if self._final is None else self._final[ABOUT]["files"].get(path.name, "")

    def _checked(self, path: Path, read: Callable[[Path], tuple[T, str]]) -> T:
        value, digest = read(path)
        check_digest(path, digest, self._digest(path))
        return value


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
    config = read_config(path)
    run = fingerprint(config)
    seeds: dict[int, SeedRun] = {n: StoredSeedRun(SeedFiles(path, n), n, run) for n in seeds_in(path)}
    file = path / ENVIRONMENT
    environment = read_sealed_json(file, ENVIRONMENT_FORMAT)[0] if file.is_file() else {}
    return Run(path, config, environment, seeds)


def find_runs(under: str | Path) -> list[Path]:
    """Run directories below a folder, by name."""
    under = Path(under)
    return sorted(p.parent for p in under.rglob(CONFIG)) if under.is_dir() else []
