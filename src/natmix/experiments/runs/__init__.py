"""Runs of an algorithm on a test problem over several seeds, and the directories they leave."""

from natmix.experiments.runs.config import Limits, RunConfig, algorithm_from, configure
from natmix.experiments.runs.execution import Outcome, Watcher, execute
from natmix.experiments.runs.history import WeightHistory
from natmix.experiments.runs.loading import Run, SeedRun, find_runs, load_run

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
