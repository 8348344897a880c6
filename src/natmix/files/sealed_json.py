"""Numbers in sealed JSON files, and rows of numbers in sealed files of JSON lines.

The seal is an entry ``file`` of the object, or the last line.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from natmix.files.durable import read_bytes, write_text
from natmix.files.json_text import parse_json, to_json
from natmix.files.seal import UNSEALED, VERSION, DamagedFileError, FileFormat, check_seal, sealed

SEAL = "file"
"""The entry with format, version and checksum."""


def write_sealed_json(path: Path, kind: FileFormat, value: Mapping[str, Any]) -> str:
    """Write an object; returns its checksum."""
    text, digest = sealed(to_json({**value, SEAL: _seal(kind)}, indent=2) + "\n", ())
    write_text(path, text)
    return digest


def read_sealed_json(path: Path, kind: FileFormat) -> tuple[dict[str, Any], str]:
    """The object that `write_sealed_json` wrote, with null where there was NaN, and its checksum."""
    raw = bytes(read_bytes(path))
    value = _object(path, kind, raw)
    digest = _checked(path, kind, value.pop(SEAL, None), raw)
    return value, digest


def write_rows(path: Path, kind: FileFormat, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write one object per line, and the seal in the last one; returns the checksum."""
    lines = [to_json(row) for row in rows]
    last = to_json({SEAL: {"rows": len(rows), **_seal(kind)}})
    text, digest = sealed("\n".join([*lines, last]) + "\n", ())
    write_text(path, text)
    return digest


def read_rows(path: Path, kind: FileFormat) -> tuple[list[dict[str, Any]], str]:
    """The rows that `write_rows` wrote, with null where there was NaN, and the checksum."""
    raw = bytes(read_bytes(path))
    lines = raw.removesuffix(b"\n").split(b"\n")
    last = _object(path, kind, lines[-1])
    digest = _checked(path, kind, last.get(SEAL), raw)
    return [_object(path, kind, line) for line in lines[:-1]], digest


def _seal(kind: FileFormat) -> dict[str, Any]:
    return {"format": kind.name, "version": VERSION, "sha256": UNSEALED}


def _object(path: Path, kind: FileFormat, text: bytes) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise DamagedFileError(f"{path} is damaged or not a natmix {kind.noun}: {error}.") from error
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path} is damaged or not a natmix {kind.noun}: it holds no JSON object.")
    return value


def _checked(path: Path, kind: FileFormat, seal: Any, raw: bytes) -> str:
    if not isinstance(seal, dict):
        raise DamagedFileError(
            f"{path} is damaged or not a natmix {kind.noun}: it has no entry {SEAL!r} with a checksum; a "
            "file of an earlier natmix has to be made again."
        )
    return check_seal(path, kind, seal, raw)
