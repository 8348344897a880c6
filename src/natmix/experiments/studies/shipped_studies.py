"""Studies that natmix ships: the paper's experiments."""

import importlib.resources
from pathlib import Path

from natmix.experiments.studies.definition import Study, StudyChanges, StudySource
from natmix.experiments.studies.study_file import read_study, study_from
from natmix.text.suggestions import meant


def shipped_names() -> tuple[str, ...]:
    """Names of the studies, for ``natmix study run NAME``."""
    files = importlib.resources.files("natmix.experiments.studies").joinpath("shipped").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def find_study(name: str | Path, changes: StudyChanges | None = None) -> Study:
    """The study of a file, or the shipped one of this name.

    Raises:
        ValueError: the file is wrong.
        FileNotFoundError: there is neither.
    """
    path = Path(name)
    if path.is_file():
        return read_study(path, changes)
    known = shipped_names()
    if str(name) in known:
        folder = importlib.resources.files("natmix.experiments.studies").joinpath("shipped")
        text = folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")
        return study_from(StudySource(f"{name}.toml", ".", text, changes or StudyChanges()))
    raise FileNotFoundError(
        f"There is no study file {str(name)!r}, and no shipped study of this name.{meant(name, known)} "
        f"Shipped are {', '.join(known)}."
    )
