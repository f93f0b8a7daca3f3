"""Settings and CPU cores that the ranks recorded."""
