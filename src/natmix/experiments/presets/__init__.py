"""The hyperparameters that the paper chose, for its Experiments 1 and 3."""

from natmix.experiments.presets.paper import EXPERIMENTS, Preset, codenames, paper, problems

__all__ = ["EXPERIMENTS", "Preset", "codenames", "paper", "problems"]
