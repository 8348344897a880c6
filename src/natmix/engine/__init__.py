"""The driver of a run: chunks of iterations, compilation, growth, limits, convergence and recorders."""
