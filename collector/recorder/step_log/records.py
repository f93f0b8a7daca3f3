"""A step log as records in any text log, for workers that share no disk and keep what they print.

A record is a piece of the log's bytes. It is short enough for any logging system to write whole (pipes
guarantee up to 4,096 bytes) and contains no character that such systems change:

    stallscope:1:KEY:NAME:OFFSET:CHECKSUM:PAYLOAD

KEY identifies the process (a hash of the log's first line), NAME is the log's name (``rank-00003.0.0``),
OFFSET is the position of the piece in the log, CHECKSUM its CRC-32 in hex, PAYLOAD its zlib-compressed
bytes in base64. Pieces may come in any order, twice, and from several files.
"""

import base64
import hashlib
import zlib
from typing import Iterator

#: The longest record in characters: a logging system's prefix must fit into 4,096 bytes with it.
LONGEST = 3900
_MOST_COMPRESSED = 2700
_FIRST_TRY = 16384

#: A pattern that finds records in bytes: key, name, offset, checksum, payload. Only readers compile it.
RECORD = (
    rb"stallscope:1:([0-9a-f]{16}):(rank-\d{5,}\.\d+\.\d+):(\d{1,15}):([0-9a-f]{8}):"
    rb"([A-Za-z0-9+/]+={0,2})"
)


def key_of(first_line: bytes) -> str:
    """Return what identifies this log: its first line contains host, process and clocks."""
    return hashlib.sha256(first_line).hexdigest()[:16]


def records(key: str, name: str, offset: int, data: bytes) -> Iterator[str]:
    """Encode a piece of a log as records of at most ``LONGEST`` characters.

    Args:
        key: see ``key_of``.
        name: ``rank-00003.0.0``.
        offset: the position of the piece in the log.
        data: its bytes.
    """
    at = 0
    while at < len(data):
        size = min(len(data) - at, _FIRST_TRY)
        packed = zlib.compress(data[at : at + size], 6)
        while len(packed) > _MOST_COMPRESSED:
            size //= 2
            packed = zlib.compress(data[at : at + size], 6)
        piece = data[at : at + size]
        payload = base64.b64encode(packed).decode("ascii")
        yield f"stallscope:1:{key}:{name}:{offset + at}:{zlib.crc32(piece):08x}:{payload}"
        at += size
