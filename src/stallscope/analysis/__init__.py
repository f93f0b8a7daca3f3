"""Compute an analysis from a run, without reading files, plotting or printing."""

from stallscope.words import ENTRIES

from .analyse import analyse
from .result import Analysis

__all__ = ["ENTRIES", "Analysis", "analyse"]
