"""The seven exchangeable modules of the algorithm, their codenames, hyperparameters and state."""
