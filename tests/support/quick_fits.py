"""Options of `natmix.fit` for tests in which the fit itself does not matter."""

from typing import Any

LEAST: dict[str, Any] = {"algorithm": "semydux", "start": "region", "max_iterations": 3, "progress": False}
"""What compiles fastest: fixed components, no start to look for."""
