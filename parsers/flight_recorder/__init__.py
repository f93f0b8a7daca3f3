"""Dumps of PyTorch's Flight Recorder: the collectives of each rank, and what they show together."""

from .comparing import KIND, Compared, compare
from .dump import Dump, Entry, Group
from .format import FlightRecorderFormat, parse_dump

__all__ = [
    "KIND",
    "Compared",
    "Dump",
    "Entry",
    "FlightRecorderFormat",
    "Group",
    "compare",
    "parse_dump",
]
