"""Posteriors whose moments and evidence are known: natmix beside others at equal evaluations."""
