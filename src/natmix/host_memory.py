"""How much memory this process may still take on the host, without a package for it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def free_host_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes: the least of what the machine has, the container may take and the process's limit leaves.

    None where the system does not say.
    """
    known = [*_machine(proc), *_containers(proc, cgroups), *_address_space(proc)]
    return max(0, min(known)) if known else None


def _machine(proc: Path) -> Iterator[int]:
    """Linux tells what can be had without swapping; others at most how much there is."""
    available = _fields(proc / "meminfo").get("MemAvailable")
    if available is not None:
        yield available * 1024
    elif hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _containers(proc: Path, cgroups: Path) -> Iterator[int]:
    """What the control groups of this process and those around them leave: versions 2 and 1."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            root, names = cgroups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = cgroups / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        inside = root / group.lstrip("/")
        # In a container the group may be named as the host sees it; then its root is what counts.
        folders = [inside, *inside.parents] if inside.is_dir() else [root]
        for folder in folders:
            if folder != root and root not in folder.parents:
                break
            yield from _left(folder, *names)


def _left(folder: Path, limit_name: str, usage_name: str, cache_name: str) -> Iterator[int]:
    limit, usage = _text(folder / limit_name).strip(), _text(folder / usage_name).strip()
    if limit.isdecimal() and usage.isdecimal():
        cache = _fields(folder / "memory.stat").get(cache_name, 0)  # given back when memory is short
        yield int(limit) - int(usage) + cache


def _address_space(proc: Path) -> Iterator[int]:
    """`ulimit -v`."""
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _fields(proc / "self" / "status").get("VmSize")
    if limit != resource.RLIM_INFINITY and used is not None:
        yield limit - used * 1024


def _fields(path: Path) -> dict[str, int]:
    """Lines such as ``MemFree:  123 kB`` or ``inactive_file 123``."""
    found = {}
    for line in _text(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) > 1 and words[1].isdecimal():
            found[words[0]] = int(words[1])
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
