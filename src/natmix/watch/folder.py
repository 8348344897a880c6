"""The folder that is watched: which fits and runs are in it, read again only where files have changed."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from natmix.experiments.runs.directory import CONFIG, seeds_in
from natmix.watch import view
from natmix.watch.fit_view import fit_view, is_fit
from natmix.watch.run_view import seed_view
from natmix.watch.view import RunView

MOST_SHOWN = 60
"""Runs that are shown; of more, those that were written last, and the others are counted."""
_DEEPEST = 6
_KEPT_SECONDS = 0.7
"""One answer serves all who ask within this time."""


class Shown(NamedTuple):
    """A fit or a seed that can be shown.

    Attributes:
        name: its place below the folder.
        folder: with its files.
        stamp: changes when one of them does.
        newest: when the last of them was written.
        read: makes its view.
        plan: its state as far as names of files tell.
    """

    name: str
    folder: Path
    stamp: tuple[Any, ...]
    newest: float
    read: Callable[[], RunView]
    plan: str


class WatchedFolder:
    """Fits and runs in a folder and below it. Links are not followed, so that nothing outside is read."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._known: dict[str, tuple[tuple[Any, ...], RunView]] = {}
        self._lock = threading.Lock()
        self._last: tuple[float, dict[str, Any]] | None = None

    def data(self) -> dict[str, Any]:
        """Everything that the page shows, as plain data."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] > _KEPT_SECONDS:
                found = self._read()
                self._last = time.monotonic(), found
            return self._last[1]

    def _read(self) -> dict[str, Any]:
        there = sorted(self._there(), key=lambda shown: shown.newest, reverse=True)
        kept, left = there[:MOST_SHOWN], there[MOST_SHOWN:]
        views = [self._view(shown) for shown in sorted(kept, key=lambda shown: _sortable(shown.name))]
        self._known = {shown.name: self._known[shown.name] for shown in kept}
        return {
            "title": self.root.name or str(self.root),
            "now": time.time(),
            "runs": [found.now().plain() for found in views],
            "left_out": Counter(shown.plan for shown in left),
        }

    def _view(self, shown: Shown) -> RunView:
        known = self._known.get(shown.name)
        if known is None or known[0] != shown.stamp:
            try:
                found = shown.read()
            except Exception as error:  # a page of many runs does not go away for one of them
                found = RunView(shown.name, state=view.UNREADABLE, detail=f"{type(error).__name__}: {error}")
            self._known[shown.name] = shown.stamp, found
        return self._known[shown.name][1]

    # What there is ------------------------------------------------------------------------------

    def _there(self) -> Iterator[Shown]:
        for path, folders, files in os.walk(self.root):
            here = Path(path)
            depth = len(here.relative_to(self.root).parts)
            folders[:] = [
                name
                for name in sorted(folders)
                if not name.startswith(".") and depth < _DEEPEST and not (here / name).is_symlink()
            ]
            if CONFIG in files and (here / CONFIG).is_symlink():
                folders[:] = []
                yield _linked(self._name(here), here, CONFIG)
            elif CONFIG in files and _is_run(here / CONFIG):
                folders[:] = []
                yield from self._seeds(here)
            elif is_fit(here) or here == self.root:
                yield from self._fit(here, bool(folders))

    def _fit(self, folder: Path, others: bool) -> Iterator[Shown]:
        """The fit of a folder; the folder that is watched may have none yet."""
        if not is_fit(folder) and others:
            return
        name = self._name(folder)
        stamp, newest, link = _stamp(folder)
        if link is not None:
            yield _linked(name, folder, link)
        else:
            yield Shown(name, folder, stamp, newest, lambda: fit_view(folder, name), "fit")

    def _seeds(self, folder: Path) -> Iterator[Shown]:
        name, numbers = self._name(folder), set(seeds_in(folder))
        with_plan = numbers | set(_planned(folder / CONFIG))
        top, newest_top, link_top = _stamp(folder)
        for seed in sorted(with_plan):
            title = name if len(with_plan) == 1 else f"{name} seed {seed}"
            own = folder / f"seed-{seed}"
            stamp, newest, link = _stamp(own)
            inside, newest_inside, link_inside = _stamp(own / "checkpoint")
            link = link_top or link or link_inside
            if link is not None:
                yield _linked(title, folder, link)
                continue
            newest = max(newest, newest_inside) or newest_top
            plan = _plan(own)

            def read(seed: int = seed, title: str = title) -> RunView:
                return seed_view(folder, seed, title)

            yield Shown(title, folder, (top, stamp, inside), newest, read, plan)

    def _name(self, folder: Path) -> str:
        return "/".join(folder.relative_to(self.root).parts) or self.root.name or str(self.root)


def _linked(name: str, folder: Path, link: str) -> Shown:
    def read() -> RunView:
        return RunView(name, state=view.UNREADABLE, detail=f"{link} is a link, which is not followed")

    return Shown(name, folder, (link,), 0.0, read, "unreadable")


def _stamp(folder: Path) -> tuple[tuple[Any, ...], float, str | None]:
    """Names, sizes and times of the files in a folder, the newest time, and the first link among them."""
    found: list[tuple[Any, ...]] = []
    link = folder.name if folder.is_symlink() else None
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    link = link or entry.name
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                    about = entry.stat(follow_symlinks=False)
                    found.append((entry.name, about.st_mtime_ns, about.st_size, about.st_ino))
    except OSError:
        return (), 0.0, link
    newest = max((about[1] for about in found), default=0) / 1e9
    return tuple(sorted(found)), newest, link


def _plan(seed: Path) -> str:
    for word, file in (("ended", "final.json"), ("failed", "failed.json")):
        if (seed / file).is_file():
            return word
    return "not ended"


def _is_run(config: Path) -> bool:
    """Whether a configuration is of a run, or cannot be read; other programs have a config.json too."""
    try:
        found = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError):
        return True
    return isinstance(found, dict) and {"format", "problem", "algorithm"} <= set(found)


def _planned(config: Path) -> list[int]:
    """The seeds that a run has or will have; none if its configuration cannot be read."""
    try:
        found = json.loads(config.read_bytes())["seeds"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return [0]
    return [n for n in found if type(n) is int and n >= 0] if isinstance(found, list) else [0]


def _sortable(name: str) -> list[Any]:
    """Numbers in names by their values."""
    parts: list[Any] = []
    for part in name.replace("-", " ").replace("/", " / ").split():
        parts.append((0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part))
    return parts
