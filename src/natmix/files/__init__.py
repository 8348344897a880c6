"""Files: written durably and in one step, sealed with a checksum, and checked when they are read.

Arrays go to safetensors files, numbers to JSON, rows of numbers to JSON lines. docs/files.md describes them.
"""

from natmix.files.arrays import SealedArrays, read_arrays, write_arrays
from natmix.files.cache import VARIABLE, cache_base
from natmix.files.durable import (
    CannotWriteError,
    remove_leftovers,
    replacing,
    sync_folder,
    write_file,
    write_text,
)
from natmix.files.generations import exists, newest, previous, set_aside
from natmix.files.json_text import parse_json, read_json, to_json, with_nan, write_json
from natmix.files.schema import SchemaError, conform, read_object
from natmix.files.seal import FORMATS, VERSION, DamagedFileError, FileFormat
from natmix.files.sealed_json import (
    SEAL,
    read_rows,
    read_sealed_json,
    write_rows,
    write_sealed_json,
)

__all__ = [
    "FORMATS",
    "SEAL",
    "VARIABLE",
    "VERSION",
    "CannotWriteError",
    "DamagedFileError",
    "FileFormat",
    "SchemaError",
    "SealedArrays",
    "cache_base",
    "conform",
    "exists",
    "newest",
    "parse_json",
    "previous",
    "read_arrays",
    "read_json",
    "read_object",
    "read_rows",
    "read_sealed_json",
    "remove_leftovers",
    "replacing",
    "set_aside",
    "sync_folder",
    "to_json",
    "with_nan",
    "write_arrays",
    "write_file",
    "write_json",
    "write_rows",
    "write_sealed_json",
    "write_text",
]
