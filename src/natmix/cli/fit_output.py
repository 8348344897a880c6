"""The folder that `natmix fit` writes: the result, its summary, draws, and what was asked."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natmix.checks import as_int
from natmix.experiments.runs.directory import check_possible
from natmix.files.differences import differences
from natmix.files.durable import check_writable, write_file, write_text
from natmix.files.json_text import exact_json
from natmix.files.seal import FIT_COMMAND
from natmix.files.sealed_json import read_sealed_json, write_sealed_json
from natmix.models.base import coordinate_names
from natmix.result.export import variables
from natmix.result.resampling import MIN_POOL, resample
from natmix.result.result import Result

RESULT, SUMMARY, ASKED = "result.safetensors", "summary.txt", "fit.json"
DRAWS = ("npz", "csv")
MAY_DIFFER = ("data_file",)
"""Entries of what was asked in which the same fit may differ."""


def usual_folder(target: str) -> Path:
    """``fits/schools`` for ``models.py:schools``, ``models:schools`` and ``schools.stan``."""
    name = Path(target).stem if target.lower().endswith(".stan") else target.rpartition(":")[2]
    return Path("fits") / name.replace("/", "_").replace("\\", "_")


def digest(data: Path | None) -> str | None:
    """The SHA-256 of a file of data."""
    if data is None:
        return None
    return hashlib.sha256(data.read_bytes() if data.is_file() else b"").hexdigest()


def checked_kinds(kinds: Sequence[str]) -> list[str]:
    """The kinds of files of draws, each once."""
    for kind in kinds:
        if kind not in DRAWS:
            raise ValueError(f"--draws is npz or csv, got {kind!r}.")
    return list(dict.fromkeys(kinds))


class FitFolder:
    """The folder of one fit; that of another one is refused before anything is computed.

    Args:
        folder: made when the result is written.
        asked: target, data and options of the fit.
    """

    def __init__(self, folder: Path, asked: Mapping[str, Any]) -> None:
        self.folder = folder
        self._asked = json.loads(exact_json(asked))
        check_possible(folder)
        file = folder / ASKED
        if file.is_file():
            there = read_sealed_json(file, FIT_COMMAND)[0]
            found = differences(there, self._asked, MAY_DIFFER)
            if found:
                raise ValueError(
                    f"{folder} holds another fit: {_difference(*found[0])}; choose another --output."
                )
        elif folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"{folder} holds other files and no fit; choose another --output.")

    def write(self, result: Result, kinds: Sequence[str], num_draws: int, corrected: bool) -> str:
        """Write everything; returns the summary."""
        summary = result.summary()
        check_writable(self.folder)
        write_sealed_json(self.folder / ASKED, FIT_COMMAND, self._asked)
        result.save(self.folder / RESULT)
        write_text(self.folder / SUMMARY, summary + "\n")
        if kinds:
            columns = named_draws(result, as_int(num_draws, "--num-draws"), corrected)
            for kind in kinds:
                write = _write_npz if kind == "npz" else _write_csv
                write(self.folder / f"draws.{kind}", columns)
        return summary


def _difference(name: str, there: Any, here: Any) -> str:
    if name == "data":
        return "its data are other ones"
    return f"{name} is {json.dumps(there)} there and {json.dumps(here)} here"


def named_draws(result: Result, n: int, corrected: bool) -> dict[str, tuple[list[str], np.ndarray]]:
    """Draws of every variable with the labels of its entries; a function of vectors has ``x``."""
    seed = int(result.settings["seed"])
    if corrected:
        x = np.asarray(resample(result, n, max(5 * n, MIN_POOL), seed))
    else:
        x = np.asarray(result.mixture.sample(n, key=seed))
    labels = coordinate_names if result.model is None else result.model.labels
    return {
        name: (list(labels(name, value.shape[1:])), value) for name, value in variables(result, x).items()
    }


def _write_npz(path: Path, columns: Mapping[str, tuple[list[str], np.ndarray]]) -> None:
    """The variables by name, draws first."""
    content = io.BytesIO()
    np.savez(content, **{name: value for name, (_, value) in columns.items()})  # type: ignore[arg-type]
    write_file(path, content.getvalue())


def _write_csv(path: Path, columns: Mapping[str, tuple[list[str], np.ndarray]]) -> None:
    """One row for each draw, one column for each entry."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([label for labels, _ in columns.values() for label in labels])
    values = [value.reshape(len(value), -1) for _, value in columns.values()]
    rows.writerows(np.concatenate(values, axis=1).tolist())
    write_text(path, text.getvalue())
