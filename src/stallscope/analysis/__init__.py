"""Pure functions from a Run to numbers: no files, no plots, no printing."""

from .analyse import analyse
from .result import ENTRIES, Analysis
from .what_if_queries import ask

__all__ = ["ENTRIES", "Analysis", "analyse", "ask"]
