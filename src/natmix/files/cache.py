"""Natmix's cache directory."""

import os
from pathlib import Path

VARIABLE = "NATMIX_CACHE"


def cache_base() -> Path:
    """``$NATMIX_CACHE``, else ``$XDG_CACHE_HOME/natmix``, else ``~/.cache/natmix``."""
    own = os.environ.get(VARIABLE)
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "natmix"
