"""Compressed logs: rolled and delivered ones often are, whatever their names say."""

from __future__ import annotations

import bz2
import io
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
    """The bytes of a file as they were before it was compressed (gzip, bzip2, xz, zstd), or as they are.

    A file that breaks off or is damaged gives what comes before that.

    Raises:
        UnreadableError: if nothing can be unpacked, or only with an extra that is not installed.
    """
    if not is_packed(data):
        return data
    whole = unpacked_up_to(where, data, _MOST_BYTES)
    if len(whole) > _MOST_BYTES:
        raise UnreadableError(
            f"{where}: unpacks to more than {_MOST_BYTES >> 30} GiB: this is no log"
        )
    return whole


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed in a way known here."""
    return head.startswith((_ZSTD, *(magic for magic, _ in _KINDS)))


def unpacked_up_to(where: str, data: bytes, most: int) -> bytes:
    """The first bytes of a compressed file, one more than ``most`` where there are more.

    Raises:
        UnreadableError: as ``unpacked``.
    """
    if data.startswith(_ZSTD):
        whole = _frames(where, data, most)
    else:
        magic, decompressor = next(kind for kind in _KINDS if data.startswith(kind[0]))
        whole = _members(data, magic, decompressor, most)
    if not whole:
        raise UnreadableError(f"{where}: the compressed file is empty or damaged")
    return whole


def _frames(where: str, data: bytes, most: int) -> bytes:
    """All frames of a file compressed with zstd, up to one byte too many."""
    try:
        import zstandard
    except ModuleNotFoundError:
        raise UnreadableError(
            f"{where}: compressed with zstd: pip install 'stallscope[zstd]', or unpack it (zstd -d)"
        ) from None
    whole = bytearray()
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
    try:
        while block := reader.read(min(_BLOCK, most + 1 - len(whole))):
            whole += block
    except zstandard.ZstdError:
        pass  # damage costs what follows it
    return bytes(whole)


def _members(
    data: bytes, magic: bytes, decompressor: Callable[[], _Decompressor], most: int
) -> bytes:
    """All members of a file (compressed logs appended to one another), up to one byte too many."""
    whole = bytearray()
    while data.startswith(magic) and len(whole) <= most:
        unpacking = decompressor()
        rest = _unpack_into(whole, unpacking, data, most)
        if not rest:
            break
        data = rest
    return bytes(whole)


def _unpack_into(whole: bytearray, unpacking: _Decompressor, data: bytes, most: int) -> bytes:
    """Unpack one member block by block, so that damage costs what follows it; what comes after it."""
    for at in range(0, len(data), _BLOCK):
        try:
            whole += unpacking.decompress(data[at : at + _BLOCK], most + 1 - len(whole))
        except (zlib.error, OSError, lzma.LZMAError):
            return b""
        if unpacking.eof:
            return unpacking.unused_data + data[at + _BLOCK :]
        if len(whole) > most:
            return b""
    return b""
