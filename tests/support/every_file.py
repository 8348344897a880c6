"""One small file of every kind that natmix writes, and how it is read."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import run_files
from quick_fits import LEAST
from study_files import outcome_of, study_of

import natmix
from natmix import GMMVI, Mixture, Result
from natmix.engine.fit_checkpoint import read_fit_checkpoint
from natmix.engine.progress_file import read_progress
from natmix.experiments.runs.checkpoint import Owner, load_checkpoint
from natmix.experiments.runs.directory import SeedFiles, fingerprint, read_config
from natmix.experiments.runs.history import (
    WeightHistory,
    read_trace,
    read_weights,
    write_trace,
    write_weights,
)
from natmix.experiments.runs.rows import read_evaluations, read_failure, read_final
from natmix.experiments.studies.client import opened
from natmix.experiments.studies.study_folder import StudyFolder, read_outcome, read_plan, read_source
from natmix.files.seal import ENVIRONMENT, FIT_COMMAND
from natmix.files.sealed_json import read_sealed_json, write_sealed_json
from natmix.mixture.files import load_metadata


@dataclasses.dataclass(frozen=True)
class EveryFile:
    """A file, what its reader makes of it, and the kind of check that it has."""

    content: bytes
    read: Callable[[Path], Any]
    sealed: bool = True


def bounded(x):
    return -0.5 * jnp.sum((x - 0.4) ** 2) / 0.1**2


def mixture(kind="full") -> Mixture:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 2))
    if kind == "diagonal":
        return Mixture.diagonal([1, 2, 0], means, rng.uniform(0.1, 2, (3, 2)))
    A = rng.normal(size=(3, 2, 2))
    return Mixture.full([1, 2, 0], means, A @ np.swapaxes(A, 1, 2) + np.eye(2))


def every_file(folder: Path) -> dict[str, EveryFile]:
    """All kinds, by name; written below ``folder``."""
    config = run_files.write_directory(folder / "run", "stm3", "SAMTRON", seeds=[0])
    files = SeedFiles(folder / "run", 0)
    files.folder.mkdir()
    mixture().save(folder / "full", {"problem": "stm3", "seed": 0})
    mixture("diagonal").save(folder / "diagonal")
    result = natmix.fit(bounded, 2, bounds=(0, 1), elbo_samples=40, verify=False, **LEAST)
    result.save(folder / "result")
    trace = {"elbo": np.linspace(-3, 0, 9), "added": np.arange(9) % 2 == 0, "components": np.arange(9)}
    weights = np.array([0.25, 0.75], np.float32)
    history = WeightHistory.from_rows([(i, np.arange(2, dtype=np.int32), weights) for i in (1, 4, 9)])
    write_trace(files.trace, trace)
    write_weights(files.weights, history)
    rows = [{"iterations": i, "seconds": 0.1 * i, "neg_elbo": 1.0 / i} for i in range(1, 6)]
    digest = run_files.write_evaluations(files.metrics, rows)
    run_files.write_final(files.final, config, 0, {"metrics.jsonl": digest}, detected_modes=2.0)
    run_files.write_failure(files.folder, "Boom.")
    run_files.write_checkpoint(files, config, 0, trace, history)
    owner = Owner(seed=0, run=fingerprint(config))
    algorithm = GMMVI.from_codename("semydux")
    start = Mixture.full([1.0], np.zeros((1, 1)), np.ones((1, 1, 1)))

    def with_metadata(path: Path) -> Any:
        return Mixture.load(path), load_metadata(path)

    study = StudyFolder(folder / "study")
    made = study.create(study_of(folder))
    opened(study, made).next()
    study.write_outcome(outcome_of(0, 1.5))

    def checkpoint(path: Path) -> Any:
        state, records, _ = load_checkpoint(path, algorithm, start, start, owner)
        leaves = [jax.random.key_data(a) if a.dtype == state.key.dtype else a for a in jax.tree.leaves(state)]
        return leaves, records.progress, records.trace, records.weights.arrays(), records.evaluations

    natmix.fit(
        bounded, 2, checkpoint=folder / "fit", checkpoint_seconds=0.0, elbo_samples=40, verify=False, **LEAST
    )
    fit_algorithm = result.algorithm
    asked = {"target": "models.py:schools", "seed": 0, "accuracy": 0.02, "dim": None}
    write_sealed_json(folder / "fit.json", FIT_COMMAND, asked)

    def fit_checkpoint(path: Path) -> Any:
        made = read_fit_checkpoint(path, [fit_algorithm], None)
        state = made.state
        leaves = [jax.random.key_data(a) if a.dtype == state.key.dtype else a for a in jax.tree.leaves(state)]
        return leaves, made.begun, made.records

    def whole_result(path: Path) -> Any:
        found = Result.load(path)
        parts = (found.mixture, found.start, found.elbo, found.counts, found.timings, found.settings)
        return parts, found.trajectory, dataclasses.asdict(found.draws), found.model.coordinates

    return {
        "mixture": EveryFile((folder / "full").read_bytes(), with_metadata),
        "diagonal mixture": EveryFile((folder / "diagonal").read_bytes(), with_metadata),
        "result": EveryFile((folder / "result").read_bytes(), whole_result),
        "checkpoint": EveryFile(files.checkpoint.read_bytes(), checkpoint),
        "fit checkpoint": EveryFile((folder / "fit" / "state.safetensors").read_bytes(), fit_checkpoint),
        "progress of a fit": EveryFile((folder / "fit" / "progress.json").read_bytes(), read_progress),
        "command of a fit": EveryFile(
            (folder / "fit.json").read_bytes(), lambda path: read_sealed_json(path, FIT_COMMAND)
        ),
        "trace": EveryFile(files.trace.read_bytes(), read_trace),
        "weights": EveryFile(files.weights.read_bytes(), lambda path: read_weights(path)[0].arrays()),
        "evaluations": EveryFile(files.metrics.read_bytes(), lambda path: read_evaluations(path)),
        "final numbers": EveryFile(files.final.read_bytes(), lambda path: read_final(path, 0)),
        "failure": EveryFile(files.failed.read_bytes(), read_failure),
        "environment": EveryFile(
            (folder / "run" / "environment.json").read_bytes(),
            lambda path: read_sealed_json(path, ENVIRONMENT),
        ),
        "study": EveryFile((study.path / "study.json").read_bytes(), read_source),
        "planned batch": EveryFile(study.batch_file(made.cells[0], 0).read_bytes(), read_plan),
        "outcome": EveryFile((study.trial(0) / "outcome.json").read_bytes(), read_outcome),
        "configuration": EveryFile(
            (folder / "run" / "config.json").read_bytes(), lambda path: read_config(path.parent), sealed=False
        ),
    }


def same(a: Any, b: Any) -> bool:
    """Whether two things that were read are equal, arrays bit for bit."""
    left, right = jax.tree.flatten(a), jax.tree.flatten(b)
    alike = left[1] == right[1]  # type: ignore[operator]
    return alike and all(_same_leaf(x, y) for x, y in zip(left[0], right[0], strict=True))


def _same_leaf(x: Any, y: Any) -> bool:
    if hasattr(x, "dtype"):
        return x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes()
    return x == y or (x != x and y != y)
