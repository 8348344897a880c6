"""Compiled programs kept on disk, so that the next process starts at once."""

import contextlib
import hashlib
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import jax

from natmix.files import cache_base

VARIABLE = "NATMIX_COMPILATION_CACHE"
MIN_SECONDS = 0.02
"""Programs that compile faster are not kept."""
MAX_BYTES = 2**30
"""The directory's size: programs used least recently are dropped when it is larger."""
_KEPT_SHARE = 0.8
"""Of that size, after some were dropped."""

_wanted: bool | None = None
_used: Path | None = None


def compilation_cache(on: bool) -> None:
    """Keep compiled programs on disk, or not; on by default, in ``natmix/compiled`` of the cache directory.

    It works by JAX's own cache, for all programs of this process from the first fit on. One that you have
    configured for JAX is left as it is. The environment variable ``NATMIX_COMPILATION_CACHE=0`` turns it off.

    Args:
        on: False to keep none from now on.
    """
    global _wanted
    if not isinstance(on, bool):
        raise ValueError(f"compilation_cache takes True or False, got {on!r}.")
    _wanted = on
    if on:
        use_compilation_cache()
    elif _used is not None and _setting("jax_compilation_cache_dir") == str(_used):
        jax.config.update("jax_compilation_cache_dir", None)


def use_compilation_cache() -> None:
    """Let JAX keep compiled programs in natmix's cache directory, unless the user has chosen otherwise."""
    global _used
    if not _is_wanted() or _setting("jax_compilation_cache_dir") is not None:
        return
    if not _setting("jax_enable_compilation_cache"):
        return
    directory = cache_base() / "compiled" / _machine()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
        drop_oldest(directory.parent, MAX_BYTES)
    except OSError:
        return  # the cache is optional: without it everything works, only slower
    _used = directory
    jax.config.update("jax_compilation_cache_dir", str(directory))
    shortest = "jax_persistent_cache_min_compile_time_secs"
    if shortest.upper() not in os.environ:
        jax.config.update(shortest, MIN_SECONDS)


def drop_oldest(directory: Path, most: int) -> None:
    """Remove files used least recently if all together are larger than ``most`` bytes."""
    files = []
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # another process may have removed it
            found = path.stat()
            if path.is_file():
                files.append((max(found.st_atime, found.st_mtime), found.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= most:
        return
    for _, size, path in sorted(files, key=lambda file: file[0]):
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
        if total <= _KEPT_SHARE * most:
            return


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def _is_wanted() -> bool:
    if _wanted is not None:
        return _wanted
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise ValueError(f"{VARIABLE} must be 0 or 1, got {value!r}.")
    return value == "1"


def _machine() -> str:
    """A name for processors of this kind: home directories are shared, and programs are for one kind."""
    kind = f"{platform.machine()} {platform.system()}"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        kind += next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return hashlib.sha256(kind.encode()).hexdigest()[:12]
