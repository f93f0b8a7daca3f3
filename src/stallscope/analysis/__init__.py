"""Compute an analysis from a run, without reading files, plotting or printing."""

from .analyse import analyse
from .ledger.ledger import ENTRIES
from .result import Analysis

__all__ = ["ENTRIES", "Analysis", "analyse"]
