"""Dumps of PyTorch's Flight Recorder: the collectives of each rank, and what they show together."""

from .comparing import KIND, DumpComparison, compare
from .dump import CollectiveEntry, Dump, Group
from .format import FlightRecorderFormat, parse_dump

__all__ = [
    "KIND",
    "CollectiveEntry",
    "Dump",
    "DumpComparison",
    "FlightRecorderFormat",
    "Group",
    "compare",
    "parse_dump",
]
