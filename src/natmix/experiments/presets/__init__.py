"""Hyperparameters that others chose: those of the paper's Experiment 3."""

from natmix.experiments.presets.paper import Preset, codenames, paper, problems

__all__ = ["Preset", "codenames", "paper", "problems"]
