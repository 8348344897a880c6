"""The test problems of the paper.

>>> from natmix.experiments import problems
>>> problem = problems.load("stm20", seed=3)
"""

from natmix.experiments.problems.base import Problem, Start
from natmix.experiments.problems.catalogue import PAPER, Entry, catalogue, load, names

__all__ = ["PAPER", "Entry", "Problem", "Start", "catalogue", "load", "names"]
