"""Pure functions from a Run to numbers: no files, no plots, no printing."""

from .analyse import analyse
from .asked import ask
from .result import ENTRIES, Analysis

__all__ = ["ENTRIES", "Analysis", "analyse", "ask"]
