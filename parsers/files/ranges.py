"""Open files at sources as Python file objects, which read piece by piece."""

from __future__ import annotations

import io
from typing import Any, cast

from stallscope.collector.sources.base import SourceFile

from .unpacking import readable

# Some codecs return nothing before they have read this much.
_AHEAD = 256 << 10


def opened(file: SourceFile, ahead: int) -> io.BufferedReader:
    """Open a file for reading from its start.

    Args:
        ahead: how many bytes to request at a time.
    """
    return io.BufferedReader(cast(io.RawIOBase, _Ranges(file)), ahead)


def beginning(file: SourceFile, most: int) -> bytes:
    """Return the first bytes of a file, uncompressed if it is compressed.

    Raises:
        NotFoundError: if it has gone.
        UnreadableError: if they cannot be read or unpacked.
    """
    if file.problem:
        return file.read()  # raises the error: its size of 0 would mean that nothing is in it
    return readable(file.where, opened(file, _AHEAD)).read(most)


class _Ranges(io.RawIOBase):
    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, at: int, whence: int = io.SEEK_SET, /) -> int:
        before = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}
        self._at = before[whence] + at
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._file.size)
        data = self._file.read(self._at, end) if end > self._at else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
