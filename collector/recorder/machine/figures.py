"""Define the kernel's figures and their sources."""

from __future__ import annotations

import os
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

# Files that are read here are shorter, except for counts per core, which are not needed.
_MOST_BYTES = 16384


class FigureColumn(NamedTuple):
    """One column of the log's lines of figures."""

    #: Its name, which ends with the unit.
    name: str
    #: Whether it only grows; then the log has its growth since the line before.
    grows: bool = True
    #: The number of the source's units in one of the log's.
    divisor: int = 1


class FigureSource(NamedTuple):
    """Some figures that are read together."""

    figures: Tuple[FigureColumn, ...]
    #: Return a value per figure, None for those that are missing.
    read: Callable[[], List[Optional[int]]]
    #: Whether reading is slow; then its cost decides how often it is read.
    is_slow: bool = False
    #: Stop its work in the background.
    close: Optional[Callable[[], None]] = None


class KernelFile:
    """A file that the kernel writes anew whenever it is read; it stays open.

    Raises:
        OSError: if it does not exist, or this process may not read it.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def read(self) -> bytes:
        return os.pread(self._descriptor, _MOST_BYTES, 0)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def numbers_by_name(text: bytes) -> Dict[bytes, int]:
    """Parse lines of a name and a number: ``read_bytes: 4096``."""
    numbers = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            numbers[words[0].rstrip(b":")] = int(words[1])
    return numbers
