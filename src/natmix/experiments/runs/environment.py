"""Where a run took place."""

import datetime
import os
import platform
from typing import Any

import jax

from natmix.files.versions import versions
from natmix.kernels.plan import default_device, usable_cores


def environment() -> dict[str, Any]:
    """Versions and hardware, as plain data."""
    return {
        **versions(),
        "platform": platform.platform(),
        "device": device(),
        "devices": jax.device_count(),
        "cpu_count": os.cpu_count(),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def device() -> str:
    """The kind of device the computation runs on."""
    used = default_device()
    if used.platform != "cpu":
        return used.device_kind
    return f"CPU, {usable_cores()} cores ({_cpu_name()})"


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
