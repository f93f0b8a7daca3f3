"""Runs of a dashboard, and their analyses."""

from .experiments import Experiment
from .listing import SORTS, Listed, Listing
from .run_sources import CollectedRuns, RunSource, SourceContents
from .run_store import RunStore

__all__ = [
    "SORTS",
    "CollectedRuns",
    "Experiment",
    "Listed",
    "Listing",
    "RunSource",
    "RunStore",
    "SourceContents",
]
