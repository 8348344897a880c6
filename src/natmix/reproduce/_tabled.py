"""Seeds of a table that was written before, where their run directories are gone."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natmix.mixture import Mixture
from natmix.runs import Run, SeedRun
from natmix.runs._history import WeightHistory

SEEDS = "table3_seeds.csv"
LOOKS = "table3_looks.csv"
LOOKED = ("seconds", "compile_seconds", "iterations", "evaluations", "components", "neg_elbo")
"""What is kept of a look."""

TOLD = ("seconds_to_paper", "run_seconds_to_paper")
"""What the table says of a seed's looks: it may have more of them than are known."""

DTYPE = "float32"
"""What the table is run in; other runs may be beside them."""

UNFINISHED = "unfinished"
"""Why a seed stopped that was broken off."""

_NAMES = ("algorithm", "problem", "seed")

Looks = dict[tuple[str, ...], list[dict[str, str]]]


class TabledSeed(SeedRun):
    """A seed of which the numbers are left."""

    def __init__(
        self, path: Path, seed: int, metrics: dict[str, np.ndarray], final: dict[str, Any] | None
    ) -> None:
        about = {"seed": seed, "metrics": metrics, "trace": {}, "weights": WeightHistory.from_rows([])}
        self.__dict__.update(about, final=final, failure=None, _path=path)

    @property
    def mixture(self) -> Mixture:  # type: ignore[override]
        table = self._path  # type: ignore[attr-defined]
        raise FileNotFoundError(f"Seed {self.seed} has no mixture here: {table} has its numbers alone.")

    def with_final(self, final: dict[str, Any]) -> SeedRun:
        return TabledSeed(self._path, self.seed, self.metrics, final)  # type: ignore[attr-defined]


def tabled_runs(folder: Path) -> Iterator[Run]:
    """A run for each seed in the table that a folder holds, if it holds one."""
    path = folder / SEEDS
    if path.is_file():
        looks = _looks(folder / LOOKS)
        for row in _rows(path, (*_NAMES, *LOOKED, "stopped", "device")):
            yield _run(path, row, looks.get(tuple(row[name] for name in _NAMES), []))


def _looks(path: Path) -> Looks:
    out: Looks = {}
    if path.is_file():
        for row in _rows(path, (*_NAMES, *LOOKED)):
            out.setdefault(tuple(row[name] for name in _NAMES), []).append(row)
    return out


def _rows(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(
                f"{path} is no table of seeds that can be read: it has no column {missing[0]!r}."
            )
        return list(reader)


def _run(path: Path, row: Mapping[str, str], looks: list[dict[str, str]]) -> Run:
    final: dict[str, Any] = {}
    try:
        seed = int(row["seed"])
        known: Sequence[Mapping[str, str]] = looks or [row]
        for name, text in row.items():
            if name in (*_NAMES, *TOLD):
                continue
            if name.startswith("limits."):
                limits = final.setdefault("limits", {})
                limits[name.removeprefix("limits.")] = _value(text) if text else None
            elif text:
                final[name] = text.split() if name == "missing_metrics" else _value(text)
        metrics = {name: np.array([float(look[name] or "nan") for look in known]) for name in LOOKED}
        told = {name: float(row.get(name) or "inf") for name in TOLD}
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    metrics |= {name: np.full(len(metrics["seconds"]), value) for name, value in told.items()}
    broken = final["stopped"] == UNFINISHED
    config = {
        "problem": {"name": row["problem"], "options": {}},
        "algorithm": {"codename": row["algorithm"]},
        "limits": final["limits"],
        "dtype": DTYPE,
    }
    tabled = TabledSeed(path, seed, metrics, None if broken else final)
    return Run(path, config, {"device": final["device"]}, {seed: tabled})


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
