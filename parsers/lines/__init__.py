"""Blocks of lines as arrays, and the timestamps in lines."""
