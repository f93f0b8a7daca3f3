"""Conditions on runs: ``report --fail-if``, ``watch --when``, ``runs --where`` and the search.

``language`` parses all of them. ``filters`` compares fields of a list of runs with values, and
``condition`` compares figures of an analysis (docs/conditions.md).
"""
