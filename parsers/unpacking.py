"""Compressed files as streams of what was in them, up to the first damage."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

from stallscope.errors import UnreadableError

_ZSTD = b"\x28\xb5\x2f\xfd"
_KINDS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}


class Readable(Protocol):
    """What bytes can be read from: fewer than were asked for are the last ones."""

    def read(self, size: int, /) -> bytes: ...


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed in a way known here."""
    return head.startswith((_ZSTD, *_KINDS))


def unpacking(where: str, file: BinaryIO, head: bytes) -> Readable:
    """What is in a compressed file (gzip, bzip2, xz, zstd), also in several that were joined.

    A file that breaks off or is damaged gives what comes before that.

    Args:
        where: what messages call the file.
        head: its first bytes, which are still to be read from ``file``.

    Raises:
        UnreadableError: if it can be unpacked only with an extra that is not installed.
    """
    if head.startswith(_ZSTD):
        return _zstd(where, file)
    kind = next(kind for magic, kind in _KINDS.items() if head.startswith(magic))
    return _UpToDamage(kind(file), (OSError, EOFError, zlib.error, lzma.LZMAError))


def _zstd(where: str, file: BinaryIO) -> Readable:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise UnreadableError(
            f"{where}: compressed with zstd: pip install 'stallscope[zstd]', or unpack it (zstd -d)"
        ) from None
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return _UpToDamage(reader, (zstandard.ZstdError,))


class _UpToDamage:
    def __init__(self, file: Any, damage: tuple[type[Exception], ...]) -> None:
        self._file = file
        self._damage = damage
        self._over = False

    def read(self, size: int, /) -> bytes:
        whole = bytearray()
        while len(whole) < size and not self._over:
            try:
                # One piece at a time, so that damage costs what follows it and nothing before it.
                piece = self._file.read1(size - len(whole))
            except self._damage:
                piece = b""
            self._over = not piece
            whole += piece
        return bytes(whole)
