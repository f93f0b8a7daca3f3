"""Read dumps of PyTorch's Flight Recorder: the collectives of each rank, and stalls among all ranks."""

from .comparing import KIND, DumpComparison, compare
from .dump import CollectiveEntry, Dump, FlightRecorderFormat, Group, parse_dump

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
