"""Inspect logs: the format and contents of each file, and the runs that the files make up."""
