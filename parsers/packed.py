"""Uncompress logs: rolled and delivered ones are often compressed, whatever their names."""

from __future__ import annotations

import io
from typing import NamedTuple

from stallscope.errors import UnreadableError

from .unpacking import is_packed, unpacking

# A file that unpacks to more is not a log. Bars that are redrawn again and again compress to a
# hundredth; files that compress better are made to fill memory.
_MOST_BYTES = 8 << 30
_MOST_TIMES = 100
_FEWEST_BYTES = 1 << 30


#: How names of compressed files end, as a regular expression has it.
ENDING = r"\.(?:gz|bz2|xz|zst|lz4)"


class Unpacked(NamedTuple):
    """The contents of a file."""

    data: bytes
    #: Whether there was more, which damage has cost.
    broke_off: bool


def unpacked(where: str, data: bytes) -> bytes:
    """Return the contents of a file, uncompressed if it is compressed.

    A file that breaks off or is damaged gives what comes before that.

    Raises:
        UnreadableError: if nothing can be unpacked.
    """
    return unpacked_whole(where, data).data


def unpacked_whole(where: str, data: bytes) -> Unpacked:
    """Do the same, and return whether the contents are complete.

    Raises:
        UnreadableError: as ``unpacked``.
    """
    if not is_packed(data):
        return Unpacked(data, False)
    most = min(_MOST_BYTES, max(_FEWEST_BYTES, _MOST_TIMES * len(data)))
    whole = unpacked_up_to(where, data, most)
    if len(whole.data) > most:
        raise UnreadableError(f"{where}: unpacks to more than {most >> 20:,} MiB: this is no log")
    return whole


def unpacked_up_to(where: str, data: bytes, most: int) -> Unpacked:
    """Return the first bytes of a compressed file, one more than ``most`` if there are more.

    Raises:
        UnreadableError: as ``unpacked``.
    """
    stream = unpacking(where, io.BytesIO(data), data)
    whole = stream.read(most + 1)
    if not whole:
        raise UnreadableError(f"{where}: the compressed file is empty or damaged")
    return Unpacked(whole, stream.broke_off)
