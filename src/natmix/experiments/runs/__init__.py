"""Runs of an algorithm on a test problem over several seeds, and the directories they leave."""

from natmix.engine.limits import Limits
from natmix.experiments.runs.config import RunConfig, algorithm_from, configure
from natmix.experiments.runs.execution import RunOutcome, execute
from natmix.experiments.runs.history import WeightHistory
from natmix.experiments.runs.loading import Run, SeedRun, find_runs, load_run
from natmix.experiments.runs.watcher import Watcher

__all__ = [
    "Limits",
    "Run",
    "RunConfig",
    "RunOutcome",
    "SeedRun",
    "Watcher",
    "WeightHistory",
    "algorithm_from",
    "configure",
    "execute",
    "find_runs",
    "load_run",
]
