"""Compressed logs: rolled and delivered ones often are, whatever their names say."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from stallscope.errors import UnreadableError

# Nobody writes logs of that size into one file; a file that unpacks to more is no log.
_MOST_BYTES = 8 << 30
_BLOCK = 64 << 10
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


_KINDS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lzma.LZMADecompressor),
)


def unpacked(where: str, data: bytes) -> bytes:
    """The bytes of a file as they were before it was compressed (gzip, bzip2, xz), or as they are.

    A file that breaks off or is damaged gives what comes before that.

    Raises:
        UnreadableError: if nothing can be unpacked, or was compressed in a way not known here.
    """
    if data.startswith(_ZSTD):
        raise UnreadableError(f"{where}: compressed with zstd: unpack it first (zstd -d)")
    for magic, decompressor in _KINDS:
        if data.startswith(magic):
            whole = _members(data, magic, decompressor)
            if len(whole) > _MOST_BYTES:
                raise UnreadableError(
                    f"{where}: unpacks to more than {_MOST_BYTES >> 30} GiB: this is no log"
                )
            if not whole:
                raise UnreadableError(f"{where}: the compressed file is empty or damaged")
            return whole
    return data


def _members(data: bytes, magic: bytes, decompressor: Callable[[], _Decompressor]) -> bytes:
    """All members of a file (compressed logs appended to one another), up to one byte too many."""
    whole = bytearray()
    while data.startswith(magic) and len(whole) <= _MOST_BYTES:
        unpacking = decompressor()
        rest = _unpack_into(whole, unpacking, data)
        if not rest:
            break
        data = rest
    return bytes(whole)


def _unpack_into(whole: bytearray, unpacking: _Decompressor, data: bytes) -> bytes:
    """Unpack one member block by block, so that damage costs what follows it; what comes after it."""
    for at in range(0, len(data), _BLOCK):
        try:
            whole += unpacking.decompress(data[at : at + _BLOCK], _MOST_BYTES + 1 - len(whole))
        except (zlib.error, OSError, lzma.LZMAError):
            return b""
        if unpacking.eof:
            return unpacking.unused_data + data[at + _BLOCK :]
        if len(whole) > _MOST_BYTES:
            return b""
    return b""
