"""Compressed logs: rolled and delivered ones often are, whatever their names say."""

from __future__ import annotations

import io

from stallscope.errors import UnreadableError

from .unpacking import is_packed, unpacking

# Nobody writes logs of that size into one file; a file that unpacks to more is no log.
_MOST_BYTES = 8 << 30


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


def unpacked_up_to(where: str, data: bytes, most: int) -> bytes:
    """The first bytes of a compressed file, one more than ``most`` where there are more.

    Raises:
        UnreadableError: as ``unpacked``.
    """
    whole = unpacking(where, io.BytesIO(data), data).read(most + 1)
    if not whole:
        raise UnreadableError(f"{where}: the compressed file is empty or damaged")
    return whole
