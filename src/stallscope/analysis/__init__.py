"""Compute an analysis from a run, without reading files, plotting or printing."""

from .analyse import analyse
from .ledger.ledger import ENTRIES
from .result import Analysis
from .views.what_if_queries import ask

__all__ = ["ENTRIES", "Analysis", "analyse", "ask"]
