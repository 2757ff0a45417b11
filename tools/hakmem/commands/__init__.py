"""One module per verb: `add` registers its arguments, `run` does it and returns the exit status."""
