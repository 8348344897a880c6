"""Where a fit begins: a region that the user or the model names, or what climbs or points from there find."""

from natmix.starts._choose import STARTS, Begun, begin
from natmix.starts.pathfinder import Path, belongs, best_of_path, different, pathfinder

__all__ = ["STARTS", "Begun", "Path", "begin", "belongs", "best_of_path", "different", "pathfinder"]
