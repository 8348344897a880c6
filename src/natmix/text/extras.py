"""Libraries that natmix uses only if they are there, by the extra of natmix that installs them."""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname


def install(extra: str) -> str:
    """The command that installs an extra, as natmix itself was installed."""
    options, requirement = _installed()
    if requirement == Path.cwd().as_posix():
        requirement = "."
    name, at, url = requirement.partition(" @ ")
    quote = '"' if sys.platform == "win32" else "'"
    return f"pip install {options}{quote}{name}[{extra}]{at}{url}{quote}"


@contextlib.contextmanager
def needs(library: str, extra: str, what: str = "This") -> Iterator[None]:
    """A context for importing a library; where it is not installed the error says how to install it.

    Args:
        library: its name in words.
        extra: of natmix.
        what: needs it.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{what} needs {library}: {install(extra)}.") from error


@functools.cache
def _installed() -> tuple[str, str]:
    """Options of pip, and what it installs natmix from: its name, a clone, or a repository."""
    package = Path(__file__).resolve().parents[1]
    return installed_from(package, _record(package))


def installed_from(package: Path, record: dict[str, Any]) -> tuple[str, str]:
    """The same for natmix in this folder, with pip's record of where it came from (``direct_url.json``)."""
    root = package.parents[1]
    if package.parent.name == "src" and _is_clone(root):
        return "--editable ", root.as_posix()
    url = str(record.get("url", ""))
    if "vcs_info" in record:
        return "", f"natmix @ {record['vcs_info'].get('vcs', 'git')}+{url}"
    if "dir_info" in record and url.startswith("file:"):
        root = Path(url2pathname(urlsplit(url).path))
        if _is_clone(root):
            return "", root.as_posix()
    return "", "natmix"


def _is_clone(root: Path) -> bool:
    return (root / "pyproject.toml").is_file() and (root / "src" / "natmix").is_dir()


def _record(package: Path) -> dict[str, Any]:
    """What pip recorded; empty if natmix came from an index, or if the record is of another copy."""
    try:
        found = metadata.distribution("natmix")
        record = json.loads(found.read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    same = os.path.realpath(str(found.locate_file("natmix"))) == str(package)
    return record if same and isinstance(record, dict) else {}
