"""Name and parse chunks of logs among the artifacts of an MLflow run.

    stallscope/logs/rank-00003.0.0.steps.csv/00000000000000000000-5f2c91aa.chunk
                                             00000000000000183492-5f2c91aa.chunk
    stallscope/logs/again-1/…        a later log of the same name, of a job that continued elsewhere
    stallscope/report.html

Logs grow, and artifacts cannot. So every upload is a chunk. Its name has the position of its first byte
in the log, and the log's fingerprint, so that chunks of two logs are never joined.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple, Sequence

FOLDER = "stallscope"
LOGS = FOLDER + "/logs"

_CHUNK = re.compile(r"(\d{20})-([0-9a-f]{8})\.chunk")


class ChunkName(NamedTuple):
    """The parts of a chunk's name."""

    #: The position of its first byte in the log.
    offset: int
    #: The fingerprint of the log.
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.offset:020d}-{self.fingerprint}.chunk"


def chunk_name(text: str) -> ChunkName | None:
    """Parse the name of a chunk; return None for other files."""
    match = _CHUNK.fullmatch(text)
    return ChunkName(int(match.group(1)), match.group(2)) if match else None


def fingerprint(first_line: bytes) -> str:
    """Return a fingerprint of a log's first line, which has process, host and time."""
    return hashlib.sha256(first_line).hexdigest()[:8]


def log_folder(name: str, again: int) -> str:
    """Return the folder of a log's chunks; ``again`` counts the earlier logs of that name."""
    return f"{LOGS}/again-{again}/{name}" if again else f"{LOGS}/{name}"


class ChunkPart(NamedTuple):
    """The bytes of a log, from ``start`` to ``end``, that come from the chunk of this index."""

    chunk: int
    start: int
    end: int


def join_parts(chunks: Sequence[tuple[int, int]]) -> list[ChunkPart]:
    """Return the parts of chunks that make up a log, without overlaps or gaps.

    Bytes after a gap are left out. Chunks that were uploaded again may overlap others.

    Args:
        chunks: offset and size of each chunk.
    """
    parts: list[ChunkPart] = []
    end = 0
    for offset, size, index in sorted((*chunk, i) for i, chunk in enumerate(chunks)):
        if offset > end:
            break
        if offset + size > end:
            parts.append(ChunkPart(index, end, offset + size))
            end = offset + size
    return parts


def joined_length(chunks: Sequence[tuple[int, int]]) -> int:
    """Return the number of bytes from the log's start that its chunks have without a gap."""
    return max([0, *(part.end for part in join_parts(chunks))])
