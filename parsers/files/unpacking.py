"""Uncompress files up to the first damage, read ranges of them, and the lines that they wrap."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
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


def plain_text(data: bytes) -> bytes:
    """Return the text that a program printed.

    UTF-16 text with a byte order mark, as from editors and shells, becomes UTF-8. Lines are taken out of
    the records in which container engines and log services keep them.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", "replace").encode()
    return _unwrapped(data.removeprefix(codecs.BOM_UTF8))


# -- Lines in records ------------------------------------------------------------------------------

# What records have beside a line: Docker's, CloudWatch's, and those of Google Cloud, which have more.
_LINE_NAMES = ("log", "message", "textPayload")
_TIME_NAMES = ("time", "timestamp")
_OF_A_LINE = {
    "log": {"stream", "time", "attrs"},
    "message": {"timestamp", "ingestionTime", "eventId", "logStreamName", "logGroupName"},
}
_DOCKER = b'"log":'
_STARTS_EVENTS = re.compile(rb'(?:\{\s{0,99}"events":\s{0,9})?\[\s{0,99}\{')
# Wrapped files begin with such a record; of documents this much is read.
_LONGEST_RECORD, _MOST_OF_DOCUMENT = 1 << 20, 256 << 20


def _unwrapped(data: bytes) -> bytes:
    """Return the lines in records, after their times; other text as it is."""
    if not data.startswith((b"{", b"[")):
        return data
    first = _json_of(data[:_LONGEST_RECORD].partition(b"\n")[0])
    if isinstance(first, dict) and _line_in(first) is not None:
        return b"".join(_printed(data.splitlines()))
    if b'"message"' not in data[:_LONGEST_RECORD] or not _STARTS_EVENTS.match(data):
        return data
    document = _json_of(data) if len(data) <= _MOST_OF_DOCUMENT else None
    events = document.get("events") if isinstance(document, dict) else document
    if not isinstance(events, list) or not events or not all(map(_line_in, events)):
        return data
    return b"".join(_printed(events))


def _json_of(text: bytes) -> Any:
    """Return what a JSON text is; None for other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _line_in(record: Any) -> tuple[str, str, str] | None:
    """Return the line in a record, its stream, and its time; None for other records."""
    if not isinstance(record, dict):
        return None
    name = next((name for name in _LINE_NAMES if isinstance(record.get(name), str)), None)
    time = next((record[name] for name in _TIME_NAMES if record.get(name)), None)
    known = name is not None and {*record} <= _OF_A_LINE.get(name, {*record}) | {name}
    if name is None or not known or not isinstance(time, str | int):
        return None
    if isinstance(time, int):
        # Milliseconds since 1970.
        time = f"{time // 1000}.{time % 1000:03}" if 10**12 <= time < 10**13 else ""
    return record[name], str(record.get("stream", "")), time


def _printed(records: Sequence[Any]) -> Iterator[bytes]:
    """Yield the lines of records after their times; long lines are in several of Docker's."""
    begun: dict[str, str] = {}
    for record in records:
        parts = _line_in(_json_of(record) if isinstance(record, bytes) else record)
        if parts is None:
            # A record that was cut off has no time.
            if isinstance(record, bytes) and not record.startswith(b"{"):
                yield record + b"\n"
            continue
        text, stream, time = parts
        line = begun.pop(stream, time + " ") + text
        if isinstance(record, bytes) and _DOCKER in record and not text.endswith("\n"):
            begun[stream] = line
        else:
            yield line.removesuffix("\n").encode("utf-8", "replace") + b"\n"
    yield from (line.encode("utf-8", "replace") + b"\n" for line in begun.values())
