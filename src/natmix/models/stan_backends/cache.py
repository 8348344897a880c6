"""Where compiled Stan programs are kept; only libraries that natmix has built for this user are loaded."""

import hashlib
import os
import stat
import tempfile
import warnings
from pathlib import Path

from natmix.files.cache import VARIABLE, cache_base
from natmix.files.durable import write_file, write_text

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cached_file(content: bytes, name: str, kind: str) -> Path:
    """A file with this content and name, in a folder for what is made of it, without foreign libraries."""
    path = folder(hashlib.sha256(kind.encode() + content).hexdigest()[:24]) / name
    if not (is_private(path) and path.read_bytes() == content):
        write_file(path, content)
    for library in path.parent.glob("*.so"):
        if not is_own(library):
            library.unlink()
    return path


def folder(key: str) -> Path:
    """``stan/key`` in natmix's cache (``NATMIX_CACHE``), into which this user alone may write.

    A temporary folder, if there can be none.
    """
    above = cache_base() / "stan"
    path = above / key
    try:
        above.parent.mkdir(parents=True, exist_ok=True)
        for each in (above, path):
            each.mkdir(mode=0o700, exist_ok=True)
            if _is_mine(each.lstat()):
                each.chmod(0o700)
        if all(is_private(each) for each in (above, path)):
            return path
        warnings.warn(
            f"Others may write to {path}, so that nothing is loaded from it and Stan programs are compiled "
            f"anew: let {VARIABLE} name a folder of your own.",
            stacklevel=2,
        )
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="natmix_stan_"))


def record(library: Path) -> None:
    """Remember that natmix has built this library, by its checksum; this user alone may change it."""
    library.chmod(0o700)
    write_text(_checksum_file(library), _checksum(library))
    _checksum_file(library).chmod(0o600)


def is_own(library: Path) -> bool:
    """Whether a library is what `record` has seen, of this user, and nobody else may write to it."""
    known = _checksum_file(library)
    if not all(is_private(path) for path in (library.parent, library, known)):
        return False
    return known.read_bytes() == _checksum(library).encode()


def is_private(path: Path) -> bool:
    """Whether a file or folder (no link to one) is there, of this user, and nobody else may write to it."""
    try:
        about = path.lstat()
    except OSError:
        return False
    kind = stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode)
    return kind and _is_mine(about) and not (os.name == "posix" and about.st_mode & _OTHERS_WRITE)


def _is_mine(about: os.stat_result) -> bool:
    return os.name != "posix" or about.st_uid == os.geteuid()


def _checksum_file(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")


def _checksum(library: Path) -> str:
    with library.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
