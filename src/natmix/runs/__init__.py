"""Runs of an algorithm on a test problem over several seeds, and the directories they leave."""

from natmix.runs._config import Limits, RunConfig, algorithm_from, configure
from natmix.runs._execute import Outcome, Watcher, execute
from natmix.runs._history import WeightHistory
from natmix.runs._load import Run, SeedRun, find_runs, load_run

__all__ = [
    "Limits",
    "Outcome",
    "Run",
    "RunConfig",
    "SeedRun",
    "Watcher",
    "WeightHistory",
    "algorithm_from",
    "configure",
    "execute",
    "find_runs",
    "load_run",
]
