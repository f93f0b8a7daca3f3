"""How numbers, sums and lists are written; knows nothing of runs."""
