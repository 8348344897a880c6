"""One process owns one device: processes of a machine take the accelerators that are free, one each."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from natmix.files.lock import lock

_held = contextlib.ExitStack()
_taken: str | None = None
VISIBLE = "CUDA_VISIBLE_DEVICES"


def own_device(wait_for: list[str] | None = None) -> str | None:
    """Let JAX see one accelerator that no other process of natmix owns; to be called before JAX is used.

    Returns:
        Its number or name, None on a machine without accelerators.

    Args:
        wait_for: the accelerators; those that are visible if left out.

    Raises:
        ValueError: other processes own all of them.
    """
    global _taken
    devices = visible_devices() if wait_for is None else wait_for
    if _taken is not None or not devices:
        return _taken
    user = os.getuid() if hasattr(os, "getuid") else 0
    for device in devices:
        path = Path(tempfile.gettempdir()) / f"natmix-device-{user}-{device.replace('/', '_')}.lock"
        attempt = contextlib.ExitStack()
        if attempt.enter_context(lock(path, wait=False)):
            _held.push(attempt.pop_all())
            os.environ[VISIBLE] = _taken = device
            return device
        attempt.close()
    raise ValueError(
        f"Other processes own all {len(devices)} accelerators of this machine; use --jobs {len(devices)} "
        "at most."
    )


def give_back() -> None:
    """Own no device any longer; for tests, as JAX keeps the one it uses."""
    global _taken
    _held.close()
    _taken = None


def visible_devices() -> list[str]:
    """Accelerators that this process may use, by number or name."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return []
    if VISIBLE in os.environ:
        return [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip() not in ("", "-1")]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    found = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, check=False, timeout=60)
    count = sum(line.startswith("GPU ") for line in found.stdout.splitlines())
    return [str(i) for i in range(count)]
