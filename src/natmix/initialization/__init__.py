"""Where a fit starts: the initial region of the user or the model, or what a search from there finds."""

from natmix.initialization.pathfinder import Path, belongs, best_of_path, different, pathfinder
from natmix.initialization.starts import STARTS, AbstractStart, Initialization, Setting

__all__ = [
    "STARTS",
    "AbstractStart",
    "Initialization",
    "Path",
    "Setting",
    "belongs",
    "best_of_path",
    "different",
    "pathfinder",
]
