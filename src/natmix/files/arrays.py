"""Arrays and text in sealed safetensors files: the same content gives the same bytes."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from natmix.files.durable import read_bytes, write_file
from natmix.files.json_text import parse_json
from natmix.files.schema import SchemaError, conform
from natmix.files.seal import UNSEALED, VERSION, DamagedFileError, FileFormat, check_seal, sealed

_TYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}
_ALIGNMENT = 8
_METADATA = "__metadata__"
_MAX_AXES = 32


class _ArrayEntry(TypedDict):
    dtype: str
    shape: list[int]
    data_offsets: list[int]


class SealedArrays(NamedTuple):
    """The content of a file.

    Attributes:
        metadata: text by name.
        arrays: by name.
        digest: the checksum.
    """

    metadata: dict[str, str]
    arrays: dict[str, np.ndarray]
    digest: str


def write_arrays(
    path: Path,
    kind: FileFormat,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str],
    keep: Path | None = None,
) -> str:
    """Write a file in one step; returns its checksum. What was there stays as ``keep``, if that is given."""
    parts, digest = sealed_arrays(kind, arrays, metadata)
    write_file(path, *parts, keep=keep)
    return digest


def sealed_arrays(
    kind: FileFormat, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> tuple[list[bytes | memoryview], str]:
    """The parts of such a file, and its checksum."""
    stored = {name: _stored(name, array) for name, array in arrays.items()}
    # Large items first keeps all of them aligned, as safetensors does it.
    order = sorted(stored, key=lambda name: (-stored[name].dtype.itemsize, name))
    about = {"format": kind.name, "version": VERSION, "sha256": UNSEALED, **metadata}
    header: dict[str, Any] = {_METADATA: dict(sorted(about.items()))}
    end = 0
    for name in order:
        start, end = end, end + stored[name].nbytes
        dtype = _NAMES[stored[name].dtype]
        header[name] = {"dtype": dtype, "shape": list(stored[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text) % _ALIGNMENT)
    length = len(text).to_bytes(8, "little")
    data = [stored[name].reshape(-1).view(np.uint8).data for name in order if stored[name].size]
    text, digest = sealed(text, data)
    return [length, text.encode(), *data], digest


def read_arrays(path: Path, kind: FileFormat) -> SealedArrays:
    """Read a file and check its seal.

    Raises:
        FileNotFoundError: there is none.
        DamagedFileError: the content is not what was written.
        ValueError: it is a file of another kind or version.
    """
    return parsed_arrays(path, kind, memoryview(read_bytes(path)))


def parsed_arrays(path: Path, kind: FileFormat, content: memoryview) -> SealedArrays:
    """The same of the bytes of a file; ``path`` is named in errors. The arrays are views of the bytes."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise _no_tensors(path, kind)
    raw, data = bytes(content[8 : 8 + length]), content[8 + length :]
    try:
        header = parse_json(raw)
    except ValueError as error:
        raise _no_tensors(path, kind) from error
    metadata = header.pop(_METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _no_tensors(path, kind)
    digest = check_seal(path, kind, metadata, raw, [data])
    arrays, end = {}, 0
    for name, entry in header.items():
        arrays[name], end = _array(path, name, entry, data, end)
    if end != len(data):
        raise DamagedFileError(f"{path} is damaged: its length is not that of its arrays.")
    others = {k: v for k, v in metadata.items() if k not in ("format", "version", "sha256")}
    return SealedArrays(others, arrays, digest)


def _stored(name: str, array: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    little = array.dtype.newbyteorder("<")
    if little not in _NAMES:
        raise ValueError(f"The array {name!r} has the type {array.dtype}, which a file cannot hold.")
    return np.ascontiguousarray(array, little).reshape(array.shape)


def _array(path: Path, name: str, entry: Any, data: memoryview, start: int) -> tuple[np.ndarray, int]:
    """An array that starts where the one before ended, and where it ends."""
    try:
        about = conform(_ArrayEntry, entry, name)
    except SchemaError as error:
        raise DamagedFileError(f"{path} is damaged: {error}.") from error
    shape, offsets = about["shape"], about["data_offsets"]
    if about["dtype"] not in _TYPES or min(shape, default=0) < 0 or len(shape) > _MAX_AXES:
        raise DamagedFileError(f"{path} is damaged: its array {name!r} has no shape or type.")
    dtype, size = np.dtype(_TYPES[about["dtype"]]), math.prod(shape)
    end = start + size * dtype.itemsize
    if offsets != [start, end] or end > len(data):
        raise DamagedFileError(f"{path} is damaged: its array {name!r} has the shape {shape} but other data.")
    if dtype.kind == "b" and size and np.frombuffer(data, np.uint8, size, start).max() > 1:
        raise DamagedFileError(f"{path} is damaged: its array {name!r} holds neither true nor false.")
    return np.frombuffer(data, dtype, size, start if size else 0).reshape(shape), end


def _no_tensors(path: Path, kind: FileFormat) -> DamagedFileError:
    return DamagedFileError(f"{path} is damaged or not a natmix {kind.noun}: it is not a safetensors file.")
