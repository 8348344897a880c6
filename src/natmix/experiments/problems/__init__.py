"""The test problems of the paper.

>>> from natmix.experiments import problems
>>> problem = problems.load("stm20", seed=3)
"""

from natmix.experiments.problems.base import InitialRegion, Problem
from natmix.experiments.problems.catalogue import PAPER, Entry, catalogue, load, names

__all__ = ["PAPER", "Entry", "InitialRegion", "Problem", "catalogue", "load", "names"]
