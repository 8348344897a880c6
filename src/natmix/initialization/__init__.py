"""Where a fit begins: a region that the user or the model names, or what climbs or points from there find."""

from natmix.initialization.pathfinder import Path, belongs, best_of_path, different, pathfinder
from natmix.initialization.starts import STARTS, Begun, begin

__all__ = ["STARTS", "Begun", "Path", "begin", "belongs", "best_of_path", "different", "pathfinder"]
