"""Pure functions from a Run to numbers: no files, no plots, no printing."""

from .analyse import analyse
from .ledger.ledger import ENTRIES
from .result import Analysis
from .views.what_if_queries import ask

__all__ = ["ENTRIES", "Analysis", "analyse", "ask"]
