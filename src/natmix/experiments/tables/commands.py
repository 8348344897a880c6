"""The commands that repeat the runs of a table."""

from collections.abc import Mapping

from natmix.experiments import presets
from natmix.experiments.tables import formatting
from natmix.experiments.tables.collection import Collection

_OPTIONS = {"max_seconds": "--max-time", "max_run_seconds": "--max-run-time"}

Times = tuple[float | None, ...]


def run_commands(collection: Collection) -> list[str]:
    """The commands, from the finished seeds and their time limits."""
    # (codename, seeds) -> problem -> times; a problem whose seeds had different limits appears in several.
    blocks: dict[tuple[str, str], dict[str, Times]] = {}
    for (codename, problem), run in collection.runs.items():
        usual = presets.paper(codename, problem).max_seconds
        by_times: dict[Times, list[int]] = {}
        for n, seed in run.finished.items():
            limits = seed.final["limits"] if seed.final is not None else {}
            times = tuple(None if limits.get(name) == usual else limits.get(name) for name in _OPTIONS)
            by_times.setdefault(times, []).append(n)
        for times, numbers in by_times.items():
            blocks.setdefault((codename, formatting.seeds(numbers)), {})[problem] = times
    # Codenames with the same problems, seeds and limits share a command.
    shared: dict[tuple[str, tuple[tuple[str, Times], ...]], list[str]] = {}
    for (codename, seeds), block in blocks.items():
        shared.setdefault((seeds, tuple(block.items())), []).append(codename.lower())
    return [_command(codenames, seeds, dict(block)) for (seeds, block), codenames in shared.items()]


def _command(codenames: list[str], seeds: str, block: Mapping[str, Times]) -> str:
    words = ["natmix reproduce table3 --candidates", ",".join(codenames), "--problems", ",".join(block)]
    words += ["--seeds", seeds]
    for number, option in enumerate(_OPTIONS.values()):
        times = {problem: t for problem, all_times in block.items() if (t := all_times[number]) is not None}
        if times:
            words += [option, _times(times, everywhere=len(times) == len(block))]
    return " ".join(words)


def _times(times: Mapping[str, float], everywhere: bool) -> str:
    if everywhere and len(set(times.values())) == 1:
        return f"{next(iter(times.values())):g}"
    return ",".join(f"{problem}={seconds:g}" for problem, seconds in times.items())
