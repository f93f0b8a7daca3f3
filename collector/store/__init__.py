"""Fetch, merge, save, load and mirror collected runs."""
