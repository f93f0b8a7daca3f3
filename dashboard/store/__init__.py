"""The runs that a dashboard shows, and their analyses."""

from .experiments import Experiment
from .listing import SORTS, Listed, Listing
from .run_store import RunInfo, RunStore, Summary
from .shelves import Collected, Contents, Shelf

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
    "Summary",
]
