"""Where compiled Stan programs are kept."""

import hashlib
import tempfile
from pathlib import Path

from natmix.files import cache_base, replacing


def cached_file(content: bytes, name: str, kind: str) -> Path:
    """A file with this content and name, in a folder for what is made of it; written if it is missing."""
    path = folder(hashlib.sha256(kind.encode() + content).hexdigest()[:24]) / name
    if not path.exists():
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    return path


def folder(key: str) -> Path:
    """``stan/key`` in natmix's cache (``NATMIX_CACHE``); a temporary folder if that cannot be written."""
    path = cache_base() / "stan" / key
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="natmix_stan_"))
    return path
