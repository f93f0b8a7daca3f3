"""Two runs compared, and a series of runs."""
