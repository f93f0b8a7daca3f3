"""Uncompress files as streams, up to the first damage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from stallscope.errors import UnreadableError

from .spark_blocks import DAMAGE, LZ4, LZF, SNAPPY, lz4_blocks, lzf_blocks, snappy_blocks

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
#: The message about a truncated file.
BROKE_OFF = "the compressed file breaks off or is damaged: what comes after that is missing"

# Python allocates as much as is requested, however little there is.
_PIECE = 1 << 20
_DAMAGE = (*DAMAGE, zlib.error, lzma.LZMAError)
# If a stream breaks off, Arrow returns nothing of a piece.
_ARROWS_PIECE = 512


class Readable(Protocol):
    """A source of bytes: fewer than were requested are the last ones."""

    def read(self, size: int, /) -> bytes: ...


class Unpacking(Readable, Protocol):
    """A compressed file."""

    @property
    def broke_off(self) -> bool:
        """Whether damage was met, so that there is less than was put in."""


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed in a way known here."""
    return head.startswith(tuple(_KINDS))


def unpacking(where: str, file: BinaryIO, head: bytes) -> Unpacking:
    """Open a compressed file (gzip, bzip2, xz, zstd, lz4, and Spark's own codecs), or several
    joined ones.

    A file that breaks off or is damaged gives what comes before that.

    Args:
        where: what messages call the file.
        file: returns as many bytes as requested, unless it has no more.
        head: its first bytes, which are still to be read from ``file``.

    Raises:
        UnreadableError: if pyarrow was built without what it is compressed with.
    """
    kind = next(kind for magic, kind in _KINDS.items() if head.startswith(magic))
    try:
        return _UpToDamage(kind(file))
    except pa.ArrowNotImplementedError as error:
        raise UnreadableError(
            f"{where}: this pyarrow cannot unpack it ({error}); unpack it, or pip install pyarrow"
        ) from None


class _Arrows:
    def __init__(self, file: BinaryIO, codec: str) -> None:
        self._file = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)

    def read1(self, size: int, /) -> bytes:
        return bytes(self._file.read(min(size, _ARROWS_PIECE)))


class _UpToDamage:
    def __init__(self, file: Any) -> None:
        self._file = file
        self._over = False
        self.broke_off = False

    def read(self, size: int, /) -> bytes:
        # Gives its bytes away without a copy of them.
        whole = io.BytesIO()
        while whole.tell() < size and not self._over:
            try:
                # One piece at a time, so that nothing before damage is lost.
                piece = self._file.read1(min(size - whole.tell(), _PIECE))
            except _DAMAGE:
                piece, self.broke_off = b"", True
            self._over = not piece
            whole.write(piece)
        return whole.getvalue()
