"""Runs of a dashboard, and their analyses."""

from .experiments import Experiment
from .listing import SORTS, Listed, Listing
from .run_sources import Collected, Contents, Shelf
from .run_store import RunInfo, RunStore

__all__ = [
    "SORTS",
    "Collected",
    "Contents",
    "Experiment",
    "Listed",
    "Listing",
    "RunInfo",
    "RunStore",
    "Shelf",
]
