"""Seeds read from the CSV files of an earlier table, when their run directories are gone."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natmix.experiments.runs import Run, SeedRun
from natmix.experiments.runs.history import WeightHistory
from natmix.mixture import Mixture

SEEDS = "table3_seeds.csv"
CURVES = "table3_learning_curves.csv"
CURVE_COLUMNS = ("seconds", "compile_seconds", "iterations", "evaluations", "components", "neg_elbo")
"""What is kept of an evaluation of the ELBO."""

TIME_COLUMNS = ("seconds_to_paper", "run_seconds_to_paper")
"""Times to the paper's ELBO, from all evaluations of a seed: the file may hold fewer of them."""

DTYPE = "float32"
"""The float type of the table's runs; other runs may be in the same folder."""

UNFINISHED = "unfinished"
"""Why an unfinished seed stopped."""

_OTHER_TYPE = ", float64"
_NAMES = ("algorithm", "problem", "seed")

Curves = dict[tuple[str, ...], list[dict[str, str]]]


class SavedSeed(SeedRun):
    """A seed of which only numbers are left: ``numbers`` has all columns of the table."""

    def __init__(
        self,
        path: Path,
        seed: int,
        metrics: dict[str, np.ndarray],
        numbers: dict[str, Any],
        final: dict[str, Any] | None,
    ) -> None:
        about = {"seed": seed, "metrics": metrics, "trace": {}, "weights": WeightHistory.from_rows([])}
        self.__dict__.update(about, final=final, failure=None, path=path, numbers=numbers)

    path: Path
    numbers: dict[str, Any]

    @property
    def mixture(self) -> Mixture:
        raise FileNotFoundError(f"Seed {self.seed} has no mixture here: {self.path} has its numbers alone.")

    def with_final(self, final: dict[str, Any]) -> SeedRun:
        return SavedSeed(self.path, self.seed, self.metrics, self.numbers, final)

    def __repr__(self) -> str:
        return f"SavedSeed({str(self.path)!r}, {self.seed})"


def saved_runs(folder: Path) -> Iterator[Run]:
    """A run for each seed of the table in a folder, if there is one."""
    path = folder / SEEDS
    if path.is_file():
        curves = _curves(folder / CURVES)
        for row in _rows(path, (*_NAMES, *CURVE_COLUMNS, "stopped", "device")):
            yield _run(path, row, curves.get(tuple(row[name] for name in _NAMES), []))


def _curves(path: Path) -> Curves:
    out: Curves = {}
    if path.is_file():
        for row in _rows(path, (*_NAMES, *CURVE_COLUMNS)):
            out.setdefault(tuple(row[name] for name in _NAMES), []).append(row)
    return out


def _rows(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path} cannot be read as a table of seeds: it has no column {missing[0]!r}.")
        return list(reader)


def _run(path: Path, row: Mapping[str, str], curve: list[dict[str, str]]) -> Run:
    try:
        seed, numbers = int(row["seed"]), _numbers(row)
        known: Sequence[Mapping[str, str]] = curve or [row]
        metrics = {name: np.array([float(point[name] or "nan") for point in known]) for name in CURVE_COLUMNS}
        times = {name: float(row.get(name) or "inf") for name in TIME_COLUMNS}
        limits, device = numbers["limits"], numbers["device"]
        broken = numbers["stopped"] == UNFINISHED
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    except KeyError as error:
        raise ValueError(f"{path} is damaged: a seed has no {error}.") from error
    metrics |= {name: np.full(len(known), value) for name, value in times.items()}
    numbers["device"] = str(device).removesuffix(_OTHER_TYPE)
    config = {
        "problem": {"name": row["problem"], "options": {}},
        "algorithm": {"codename": row["algorithm"]},
        "limits": limits,
        "dtype": _OTHER_TYPE.strip(", ") if str(device).endswith(_OTHER_TYPE) else DTYPE,
    }
    tabled = SavedSeed(path, seed, metrics, numbers, None if broken else numbers)
    return Run(path, config, {"device": numbers["device"]}, {seed: tabled})


def _numbers(row: Mapping[str, str]) -> dict[str, Any]:
    """Numbers as in a ``final.json``; unknown ones are left out."""
    out: dict[str, Any] = {}
    for name, text in row.items():
        if name in (*_NAMES, *TIME_COLUMNS):
            continue
        if name.startswith("limits."):
            out.setdefault("limits", {})[name.removeprefix("limits.")] = _value(text) if text else None
        elif text:
            out[name] = text.split() if name == "missing_metrics" else _value(text)
        elif name in CURVE_COLUMNS:
            out[name] = math.nan
    return out


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
