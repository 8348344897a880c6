"""Which sources a library was compiled from. Of the standard library alone: it runs at installation."""

import hashlib
from pathlib import Path

SHARED = Path(__file__).parent / "c"
"""C files of the core library, which others are built with too."""


def digest(*folders: Path) -> str:
    """Of the C files in these folders."""
    files = [
        path for folder in folders for path in sorted(folder.glob("*.[ch]")) + sorted(folder.glob("*.def"))
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
