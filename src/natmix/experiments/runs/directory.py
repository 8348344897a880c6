"""Run directories: who writes what where.

::

    RUN/config.json          problem, algorithm, start, preset, precision, limits, seeds
    RUN/environment.json     versions and hardware of the process that wrote last
    RUN/seed-0/metrics.jsonl one object per evaluation of the ELBO
    RUN/seed-0/trace.npz     every iteration's numbers
    RUN/seed-0/weights.npz   component weights over time
    RUN/seed-0/checkpoint/   state.safetensors, until the seed has finished
    RUN/seed-0/mixture.safetensors, final.json   when it has
    RUN/seed-0/failed.json   instead, when it could not

Every file is replaced in one step, so that a run killed at any moment leaves a readable directory.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from natmix.experiments.runs.config import differences
from natmix.files import write_json

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
MAY_DIFFER = ("limits", "seeds")
_FEW = 3


class SeedFiles:
    """Where one seed's files are."""

    def __init__(self, run: Path, seed: int) -> None:
        self.folder = run / f"seed-{seed}"
        self.metrics = self.folder / "metrics.jsonl"
        self.trace = self.folder / "trace.npz"
        self.weights = self.folder / "weights.npz"
        self.checkpoint = self.folder / "checkpoint" / "state.safetensors"
        self.mixture = self.folder / "mixture.safetensors"
        self.final = self.folder / "final.json"
        self.failed = self.folder / "failed.json"

    def create(self) -> None:
        """Make the folders."""
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)

    def drop_checkpoint(self) -> None:
        """Remove it, for it may be large."""
        shutil.rmtree(self.checkpoint.parent, ignore_errors=True)


def prepare(path: Path, config: Mapping[str, Any], seeds: Iterable[int]) -> dict[str, Any]:
    """Make ``path`` a directory for this run, or find that it is one; returns the joint configuration.

    Limits may differ from those of an earlier call, and seeds may come in addition.
    """
    check_writable(path)
    known: list[int] = []
    if (path / CONFIG).is_file():
        there = read_json(path / CONFIG)
        here = json.loads(json.dumps(config))
        found = differences(there, here, MAY_DIFFER)
        if found:
            raise ValueError(mismatch(path, found))
        known = there["seeds"]
    elif any(path.iterdir()):
        raise ValueError(f"{path} holds other files and no run; choose another --out.")
    joint = {**config, "seeds": sorted({*known, *seeds})}
    write_json(path / CONFIG, joint)
    return joint


def check_possible(path: Path) -> None:
    """That the folder exists or can be made, without making it."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not there.is_dir():
        why = "is a file" if there == path else f"cannot be a folder, for {there} is a file"
        raise NotADirectoryError(f"{path} {why}; choose another place.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path} cannot be made, for you may not write to {there}; choose another place."
        )


def check_writable(path: Path) -> None:
    """Make the folder, and make sure that files can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".natmix-"):
            pass
    except OSError as error:
        raise type(error)(
            f"{path} cannot be written to ({error.strerror}); choose another folder."
        ) from error


def seeds_in(path: Path) -> list[int]:
    """The seeds that have a folder."""
    matches = [re.fullmatch(r"seed-(\d+)", child.name) for child in path.iterdir() if child.is_dir()]
    return sorted(int(m[1]) for m in matches if m)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no JSON, or no text
        raise ValueError(f"{path} is damaged: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object.")
    return value


def mismatch(path: Path, found: list[tuple[str, Any, Any]]) -> str:
    """That the directory holds another run, with the first of the `differences`."""
    name, there, here = found[0]
    others = [n.replace(".settings.", ".") for n, _, _ in found[1:]]
    few = ", ".join(others[:_FEW])
    more = (
        ""
        if not others
        else f" (and {len(others)} more{':' if len(others) <= _FEW else ', among them'} {few})"
    )
    name = name.replace(".settings.", ".")
    return (
        f"{path} holds another run: {name} is {_short(there)} there and {_short(here)} here{more}; "
        "choose another --out."
    )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
