"""Versions of what computes the numbers."""

import importlib.metadata
import platform

from natmix._version import __version__

_PACKAGES = ("jax", "jaxlib", "equinox", "numpy")


def versions() -> dict[str, str]:
    """Of natmix, Python and the packages that are installed, by name."""
    found = {"natmix": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
