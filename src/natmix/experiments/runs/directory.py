"""Run directories: who writes what where; docs/files.md has the formats.

::

    RUN/config.json           problem, algorithm, start, preset, precision, limits, seeds
    RUN/environment.json      versions and hardware of the process that wrote last
    RUN/seed-0/metrics.jsonl  one object per evaluation of the ELBO
    RUN/seed-0/checkpoint/    state.safetensors and the one before, until the seed has finished
    RUN/seed-0/trace.safetensors    when it has: every iteration's numbers
    RUN/seed-0/weights.safetensors  component weights over time
    RUN/seed-0/mixture.safetensors, final.json
    RUN/seed-0/failed.json    instead, when it could not

Every file is replaced in one step and is on the disk before the next one is written, so that a run killed at
any moment leaves a readable directory.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from natmix.engine.limits import Limits
from natmix.experiments.runs.config import FORMAT, PRESETS, StoredConfig, check_choice
from natmix.files.differences import differences
from natmix.files.durable import check_writable, remove_leftovers
from natmix.files.json_text import read_json, write_json
from natmix.files.schema import read_object
from natmix.files.seal import ENVIRONMENT as ENVIRONMENT_FORMAT
from natmix.files.sealed_json import write_sealed_json
from natmix.gaussians import FAMILIES
from natmix.modules.codenames import parse

logger = logging.getLogger("natmix")

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
MAY_DIFFER = ("limits", "seeds")
_FEW = 3


class SeedFiles:
    """Where one seed's files are."""

    def __init__(self, run: Path, seed: int) -> None:
        self.folder = run / f"seed-{seed}"
        self.metrics = self.folder / "metrics.jsonl"
        self.trace = self.folder / "trace.safetensors"
        self.weights = self.folder / "weights.safetensors"
        self.checkpoint = self.folder / "checkpoint" / "state.safetensors"
        self.mixture = self.folder / "mixture.safetensors"
        self.final = self.folder / "final.json"
        self.failed = self.folder / "failed.json"

    def create(self) -> None:
        """Make the folders."""
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)

    def tidy(self) -> None:
        """Remove what writers that were killed have left; nobody else may run the seed meanwhile."""
        for folder in (self.folder, self.checkpoint.parent):
            remove_leftovers(folder)

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
        there = read_config(path)
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


def seeds_in(path: Path) -> list[int]:
    """The seeds that have a folder."""
    matches = [re.fullmatch(r"seed-(\d+)", child.name) for child in path.iterdir() if child.is_dir()]
    return sorted(int(m[1]) for m in matches if m)


def restore(path: Path, config: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
    """Make the directory of a run again, if it is gone.

    Raises:
        OSError: the folder in which it lies is gone too, or there is no room.
    """
    if (path / CONFIG).is_file():
        return
    path.mkdir(exist_ok=True)
    write_json(path / CONFIG, config)
    write_sealed_json(path / ENVIRONMENT, ENVIRONMENT_FORMAT, environment)
    logger.warning("%s was gone and has been made again.", path)


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of a run directory, which people may have edited: checked entry by entry."""
    file = path / CONFIG
    config = read_json(file)
    if config.get("format") != FORMAT:
        raise ValueError(
            f"{path} was written by another version of natmix, whose format this one cannot read."
        )
    read_object(file, StoredConfig, config)
    try:
        parse(config["algorithm"]["codename"])
        Limits(**config["limits"])
        check_choice("preset", config["preset"], PRESETS)
        check_choice("covariance", config["covariance"], tuple(FAMILIES))
    except ValueError as error:
        raise ValueError(f"{file} is damaged or was edited wrongly: {error}") from error
    return config


def fingerprint(config: Mapping[str, Any]) -> str:
    """A checksum of everything in a configuration that a run may not change."""
    kept = {name: value for name, value in config.items() if name not in MAY_DIFFER}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


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
