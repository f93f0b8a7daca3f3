"""Runs of a dashboard, and their analyses."""

from .experiments import Experiment
from .refresh import WatchedPlace
from .run_list import ANALYSED_SORTS, SORTS, ListedRun, RunListing
from .run_sources import CollectedRuns, RunSource, SourceContents
from .run_store import RunStore

__all__ = [
    "ANALYSED_SORTS",
    "SORTS",
    "CollectedRuns",
    "Experiment",
    "ListedRun",
    "RunListing",
    "RunSource",
    "RunStore",
    "SourceContents",
    "WatchedPlace",
]
