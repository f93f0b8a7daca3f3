"""Exports: a run as a trace for timeline viewers, or as a table; one file per format.

``generations`` puts them on one time line. ``trace`` makes slices, counters and marks of them,
``table`` a row per step and rank; the formats write these.
"""
