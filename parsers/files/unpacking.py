"""Uncompress files up to the first damage, whatever their names, and read ranges of them."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

import pyarrow as pa

from stallscope.collector.sources.source import SourceFile
from stallscope.errors import UnreadableError

from .spark_blocks import DAMAGE, LZ4, LZF, SNAPPY, lz4_blocks, lzf_blocks, snappy_blocks

# Some codecs return nothing before they have read this much.
_AHEAD = 256 << 10

# -- Open files at sources as Python file objects, which read piece by piece ----------------------


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


_GZIP = b"\x1f\x8b\x08"
_KINDS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda file: _Arrows(file, "zstd"),
    b"\x04\x22\x4d\x18": lambda file: _Arrows(file, "lz4"),
    LZ4: lz4_blocks,
    SNAPPY: snappy_blocks,
    **dict.fromkeys(LZF, lzf_blocks),
}
#: A regular expression for the ends of names of compressed files.
ENDING = r"\.(?:gz|bz2|xz|zst|lz4)"
#: The message about a truncated file.
TRUNCATED = "the compressed file is truncated or damaged; the rest is missing"
# Python allocates all requested memory, however short the file is.
_PIECE = 1 << 20
_DAMAGE = (*DAMAGE, zlib.error, lzma.LZMAError)
# Arrow loses the last piece before damage.
_ARROWS_PIECE = 512
_HEAD_BYTES = 16
# A file that unpacks to more is not a log. Redrawn bars compress to a hundredth; files that compress
# better are made to fill memory.
_MOST_BYTES = 8 << 30
_MOST_TIMES = 100
_FEWEST_BYTES = 1 << 30


class Readable(Protocol):
    """A source of bytes, which only returns fewer than requested at its end."""

    def read(self, size: int, /) -> bytes: ...


class Unpacked(NamedTuple):
    """The contents of a file."""

    data: bytes
    #: Whether the rest is lost to damage.
    truncated: bool


def packed_ns(head: bytes) -> int | None:
    """Return when a file was last changed by gzip's header; None if unknown."""
    seconds = int.from_bytes(head[4:8], "little") if head.startswith(_GZIP) else 0
    return seconds * 10**9 or None


class Unpacking:
    """A compressed file; ``read`` returns the contents up to the first damage."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._over = False
        #: Whether the rest is lost to damage.
        self.truncated = False

    def read(self, size: int, /) -> bytes:
        # ``getvalue`` does not copy.
        whole = io.BytesIO()
        while whole.tell() < size and not self._over:
            try:
                # One piece at a time, so that nothing before damage is lost.
                piece = self._file.read1(min(size - whole.tell(), _PIECE))
            except _DAMAGE:
                piece, self.truncated = b"", True
            self._over = not piece
            whole.write(piece)
        return whole.getvalue()


class _Arrows:
    def __init__(self, file: BinaryIO, codec: str) -> None:
        self._file = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)

    def read1(self, size: int, /) -> bytes:
        return bytes(self._file.read(min(size, _ARROWS_PIECE)))


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed in a way known here."""
    return head.startswith(tuple(_KINDS))


def unpacking(where: str, file: BinaryIO, head: bytes) -> Unpacking:
    """Open a compressed file (gzip, bzip2, xz, zstd, lz4, and Spark's own codecs), or several
    joined ones.

    Args:
        where: the file's name in messages.
        file: the file at its start.
        head: its first bytes.

    Raises:
        UnreadableError: if pyarrow was built without the codec.
    """
    kind = next(kind for magic, kind in _KINDS.items() if head.startswith(magic))
    try:
        return Unpacking(kind(file))
    except pa.ArrowNotImplementedError as error:
        raise UnreadableError(
            f"{where}: this pyarrow cannot unpack it ({error}); unpack it, or pip install pyarrow"
        ) from None


def readable(where: str, file: BinaryIO) -> Readable:
    """Return the contents of a file, uncompressed if it is compressed."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    return unpacking(where, file, head) if is_packed(head) else file


def most_unpacked(size: int) -> int:
    """Return the most bytes to which a log or an archive of this compressed size unpacks."""
    return min(_MOST_BYTES, max(_FEWEST_BYTES, _MOST_TIMES * size))


def unpacked_whole(where: str, data: bytes) -> Unpacked:
    """Return the contents of a file, uncompressed if it is compressed.

    Raises:
        UnreadableError: if nothing can be unpacked.
    """
    if not is_packed(data):
        return Unpacked(data, False)
    most = most_unpacked(len(data))
    whole = unpacked_up_to(where, data, most)
    if len(whole.data) > most:
        raise UnreadableError(f"{where}: {too_much(most)}")
    return whole


def readable_within_limits(where: str, file: BinaryIO, size: int) -> Limited:
    """Return the contents of a file as ``readable`` does, but raise if they are too long for a log.

    Args:
        size: the size of the file, compressed if it is.
    """
    stream = readable(where, file)
    return Limited(where, stream, most_unpacked(size) if isinstance(stream, Unpacking) else size)


class Limited:
    """The contents of a file, which raise ``UnreadableError`` if they are too long for a log."""

    def __init__(self, where: str, file: Readable, most: int) -> None:
        self._where = where
        self._file = file
        self._most = self._left = most

    def read(self, size: int, /) -> bytes:
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise UnreadableError(f"{self._where}: {too_much(self._most)}")
        return data

    @property
    def truncated(self) -> bool:
        """Whether the rest is lost to damage."""
        return isinstance(self._file, Unpacking) and self._file.truncated


def too_much(most: int) -> str:
    """Return the message about a file that unpacks to too much."""
    return f"unpacks to more than {most >> 20:,} MiB: this is not a log"


def unpacked_up_to(where: str, data: bytes, most: int) -> Unpacked:
    """Return the first bytes of a compressed file, one more than ``most`` if there are more.

    Raises:
        UnreadableError: if nothing can be unpacked.
    """
    stream = unpacking(where, io.BytesIO(data), data)
    whole = stream.read(most + 1)
    if not whole:
        raise UnreadableError(f"{where}: the compressed file is empty or damaged")
    return Unpacked(whole, stream.truncated)


def in_utf8(data: bytes) -> bytes:
    """Convert UTF-16 text with a byte order mark, as from editors and shells, and drop the mark."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(codecs.BOM_UTF8)
