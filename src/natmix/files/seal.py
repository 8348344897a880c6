"""What every file of natmix carries: its format, the version of the format, and a checksum.

The checksum is the SHA-256 of the whole file with 64 zeros in its own place.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

VERSION = "3"
"""Of all formats."""

UNSEALED = "0" * 64
_PLACE = re.compile(f'"sha256": ?"({UNSEALED})"')


class DamagedFileError(ValueError):
    """The content of a file is not what was written."""


class FileFormat(NamedTuple):
    """A kind of file.

    Attributes:
        name: as the file has it.
        noun: in messages.
        reader: what to call to read it; empty if nothing in the public interface does.
    """

    name: str
    noun: str
    reader: str = ""


MIXTURE = FileFormat("natmix.Mixture", "mixture", "natmix.Mixture.load")
RESULT = FileFormat("natmix.Result", "result", "natmix.Result.load")
CHECKPOINT = FileFormat("natmix.Checkpoint", "checkpoint")
FIT_CHECKPOINT = FileFormat("natmix.FitCheckpoint", "checkpoint of a fit", "natmix.fit")
TRACE = FileFormat("natmix.Trace", "trace")
WEIGHTS = FileFormat("natmix.WeightHistory", "history of weights")
EVALUATIONS = FileFormat("natmix.Evaluations", "list of evaluations")
FINAL = FileFormat("natmix.Final", "list of final numbers")
FAILURE = FileFormat("natmix.Failure", "record of a failure")
ENVIRONMENT = FileFormat("natmix.Environment", "description of a machine")
FIT_COMMAND = FileFormat("natmix.FitCommand", "record of a command")
FIT_PROGRESS = FileFormat("natmix.FitProgress", "progress of a fit")
JOURNAL = FileFormat("natmix.Journal", "journal of evaluations")
STUDY = FileFormat("natmix.Study", "study")
STUDY_PLAN = FileFormat("natmix.StudyPlan", "list of planned trials")
TRIAL_OUTCOME = FileFormat("natmix.TrialOutcome", "outcome of a trial")

_ALL = (
    MIXTURE,
    RESULT,
    CHECKPOINT,
    FIT_CHECKPOINT,
    TRACE,
    WEIGHTS,
    EVALUATIONS,
    FINAL,
    FAILURE,
    ENVIRONMENT,
    FIT_COMMAND,
    FIT_PROGRESS,
    JOURNAL,
    STUDY,
    STUDY_PLAN,
    TRIAL_OUTCOME,
)
FORMATS = {f.name: f for f in _ALL}


def check_format(path: Path, expected: FileFormat, found: Any, version: Any) -> None:
    """Raise unless a file says that it is of this format, in the version that this natmix reads."""
    other = FORMATS.get(found) if isinstance(found, str) else None
    if other is not None and other != expected:
        how = f": load it with {other.reader}" if other.reader else ""
        raise ValueError(f"{path} holds a {other.noun}, not a {expected.noun}{how}.")
    if other is None:
        raise ValueError(f"{path} is not a natmix {expected.noun}: it was written by something else.")
    if version != VERSION:
        raise ValueError(
            f"{path} has format version {version}, this natmix reads version {VERSION}; use the natmix that "
            "wrote it, or make the file again."
        )


def sealed(text: str, parts: Iterable[Any]) -> tuple[str, str]:
    """The text of a file with its checksum in the place of `UNSEALED`, and the checksum."""
    digest = _digest(text.encode(), parts)
    place = list(_PLACE.finditer(text))[-1].span(1)
    return text[: place[0]] + digest + text[place[1] :], digest


def check_seal(
    path: Path, expected: FileFormat, seal: Mapping[str, Any], start: bytes, parts: Iterable[Any] = ()
) -> str:
    """Raise unless a file is what was written, and of this format; returns the checksum.

    Args:
        path: named in errors.
        expected: the format.
        seal: what the file says of itself: ``format``, ``version``, ``sha256``.
        start: the text with the seal.
        parts: what follows the text.
    """
    digest, version = seal.get("sha256"), seal.get("version")
    if digest is None:  # of an earlier natmix, or of another program
        check_format(path, expected, seal.get("format"), version)
        raise DamagedFileError(f"{path} is damaged: it has no checksum.")
    if not _fits(digest, start, parts):
        other = "" if version == VERSION else f", or it has format version {version} and not {VERSION}"
        raise DamagedFileError(f"{path} is damaged: its checksum is not that of its content{other}.")
    check_format(path, expected, seal.get("format"), version)
    return str(digest)


def _fits(digest: Any, start: bytes, parts: Iterable[Any]) -> bool:
    if not isinstance(digest, str) or len(digest) != len(UNSEALED) or not digest.isascii():
        return False
    if start.count(digest.encode()) != 1:
        return False
    return _digest(start.replace(digest.encode(), UNSEALED.encode()), parts) == digest


def _digest(start: bytes, parts: Iterable[Any]) -> str:
    found = hashlib.sha256(start)
    for part in parts:
        found.update(part)
    return found.hexdigest()
