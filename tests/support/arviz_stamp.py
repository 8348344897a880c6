"""ArviZ before 1.0 warns once a day, and keeps the day in a file of the user's cache directory.

Test processes that import it at the same time write that file at the same time, and all but one fail.
"""

import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def write() -> None:
    """Write today's date, as ArviZ does after its warning."""
    try:
        if not version("arviz").startswith("0."):
            return
    except PackageNotFoundError:
        return
    from platformdirs import user_cache_dir

    folder = Path(user_cache_dir("arviz", "arviz"))
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "daily_warning").write_text(datetime.date.today().isoformat())
