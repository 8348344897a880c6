"""Studies: search spaces, trials, and how they are run and compared."""
