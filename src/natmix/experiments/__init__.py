"""The experiments of the paper: test problems, metrics, reference samples, presets, runs and tables."""
