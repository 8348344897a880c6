"""The journal of a target: every evaluation, one line each, from which a later fit takes what it can use.

A journal is a folder. Every process that writes makes a file of its own in it and only appends, so that
processes on several machines may share a folder. docs/files.md describes the format.
"""

import contextlib
import hashlib
import itertools
import logging
import math
import os
import secrets
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.files.json_text import parse_json, to_json
from natmix.files.seal import JOURNAL, VERSION, check_format

logger = logging.getLogger("natmix")

_SYNC_SECONDS = 1.0
"""Seconds after which the disk is asked to write at the latest; the system has every record at once."""


class Record(NamedTuple):
    """What is known of a point.

    Attributes:
        value: the log density.
        gradient: None if it was not evaluated.
    """

    value: float
    gradient: Float[np.ndarray, " D"] | None


class Journal:
    """The evaluations in a folder, and a file for more.

    Args:
        folder: made if it is not there.
        dim: D; a journal of another dimension is refused.
    """

    def __init__(self, folder: str | os.PathLike, dim: int) -> None:
        self.folder, self._dim = Path(folder), dim
        self._known: dict[bytes, Record] = {}
        self._descriptor: int | None = None
        self._path: Path | None = None
        self._length, self._synced, self._failing = 0, 0.0, False
        self._owner = os.getpid()
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file: journal= names a folder.")
        for path in sorted(self.folder.glob("*.jsonl")):
            self._read(path)

    def __len__(self) -> int:
        return len(self._known)

    def find(self, point: Float[np.ndarray, " D"], needs_gradient: bool) -> Record | None:
        """What is known of a point, bit for bit the same."""
        found = self._known.get(point.tobytes())
        return None if found is None or (needs_gradient and found.gradient is None) else found

    def add(
        self,
        point: Float[np.ndarray, " D"],
        value: float,
        gradient: Float[np.ndarray, " D"] | None,
        seconds: float,
    ) -> None:
        """Append a record; it is with the system when this returns."""
        self._known[point.tobytes()] = Record(float(value), gradient)
        line = _sealed(
            {
                "x": point.tolist(),
                "value": float(value),
                "gradient": None if gradient is None else gradient.tolist(),
                "seconds": round(seconds, 6),
            }
        )
        try:
            self._append(line)
            if self._failing:
                logger.warning("The journal %s can be written again.", self.folder)
            self._failing = False
        except OSError as error:
            if not self._failing:
                why = error.strerror or error
                logger.warning("The journal %s cannot be written (%s); the fit goes on.", self.folder, why)
            self._failing = True

    def close(self) -> None:
        """Force to the disk what was written, and close the file."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    # Writing ------------------------------------------------------------------------------------

    def _append(self, line: bytes) -> None:
        if self._descriptor is None or self._owner != os.getpid():
            self._create()
        assert self._descriptor is not None
        written = os.write(self._descriptor, line)
        if written < len(line):  # the disk is full: nothing may follow half a record
            os.ftruncate(self._descriptor, self._length)
            raise OSError(None, "no space left")
        self._length += written
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)
            self._synced = time.monotonic()

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._path = self.folder / name
        descriptor = os.open(self._path, flags, 0o666)
        head = _sealed({"format": JOURNAL.name, "version": VERSION, "dim": self._dim})
        if os.write(descriptor, head) < len(head):
            os.close(descriptor)
            self._path.unlink(missing_ok=True)
            raise OSError(None, "no space left")
        self._descriptor, self._length, self._owner = descriptor, len(head), os.getpid()

    # Reading ------------------------------------------------------------------------------------

    def _read(self, path: Path) -> None:
        """Take the records of a file; half a record at its end is of a process that was killed."""
        *lines, _ = path.read_bytes().split(b"\n")
        if not lines:
            return
        head = _object(lines[0])
        if head is None:
            logger.warning("%s is damaged in its first line; its evaluations are not used.", path)
            return
        check_format(path, JOURNAL, head.get("format"), head.get("version"))
        if head.get("dim") != self._dim:
            raise ValueError(
                f"{path} is a journal of points with {head.get('dim')} coordinates, and the target has "
                f"dim={self._dim}: give every target a journal of its own."
            )
        damaged = sum(not self._take(_object(line)) for line in itertools.islice(lines, 1, None))
        if damaged:
            logger.warning("%s is damaged: %d of its %d records are not used.", path, damaged, len(lines) - 1)

    def _take(self, record: dict[str, Any] | None) -> bool:
        """Whether this is a record, which is then known."""
        if record is None or set(record) != {"x", "value", "gradient", "seconds"}:
            return False
        point, gradient = _numbers(record["x"], self._dim), None
        if record["gradient"] is not None:
            gradient = _numbers(record["gradient"], self._dim)
            if gradient is None:
                return False
        value = math.nan if record["value"] is None else record["value"]
        if point is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        key = point.tobytes()
        if key not in self._known or gradient is not None:
            self._known[key] = Record(float(value), gradient)
        return True


_UNSEALED = "0" * 64


def _sealed(record: dict[str, Any]) -> bytes:
    """A line whose entry ``sha256`` is the checksum of the line with zeros in its place."""
    text = to_json({**record, "sha256": _UNSEALED})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return (text.replace(_UNSEALED, digest) + "\n").encode()


def _object(line: bytes) -> dict[str, Any] | None:
    """The object of a line without its checksum; None if it is not what was written."""
    try:
        record = parse_json(line)
    except ValueError:
        return None
    digest = record.pop("sha256", None) if isinstance(record, dict) else None
    if not isinstance(digest, str) or len(digest) != len(_UNSEALED) or line.count(digest.encode()) != 1:
        return None
    text = line.replace(digest.encode(), _UNSEALED.encode())
    return record if hashlib.sha256(text).hexdigest() == digest else None


def _numbers(values: Any, dim: int) -> Float[np.ndarray, " D"] | None:
    """A list of numbers as an array, NaN for null."""
    if not isinstance(values, list) or len(values) != dim:
        return None
    if any(isinstance(v, bool) or not isinstance(v, (int, float, type(None))) for v in values):
        return None
    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)
