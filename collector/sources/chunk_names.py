"""Where things are among a run's artifacts.

    stallscope/logs/rank-00003.0.0.steps.csv/00000000000000000000-5f2c91aa.chunk
                                             00000000000000183492-5f2c91aa.chunk
    stallscope/logs/again-1/…        a later log of the same name: of a job that went on elsewhere
    stallscope/report.html

Artifacts cannot grow, logs do: every upload is a chunk, named by the position of its first byte in the
log, and by the log's fingerprint, so that chunks of two logs are never joined.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple, Sequence

FOLDER = "stallscope"
LOGS = FOLDER + "/logs"

_CHUNK = re.compile(r"(\d{20})-([0-9a-f]{8})\.chunk")


class ChunkName(NamedTuple):
    """What a chunk's name says."""

    #: Of its first byte in the log.
    offset: int
    #: Of the log.
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.offset:020d}-{self.fingerprint}.chunk"


def chunk_name(text: str) -> ChunkName | None:
    """What the name of a file says of a chunk; None where it is none."""
    found = _CHUNK.fullmatch(text)
    return ChunkName(int(found.group(1)), found.group(2)) if found else None


def fingerprint(first_line: bytes) -> str:
    """What tells logs of one name apart: their first lines hold process, host and time."""
    return hashlib.sha256(first_line).hexdigest()[:8]


def log_folder(name: str, again: int) -> str:
    """The folder of a log's chunks; ``again`` counts the logs of that name."""
    return f"{LOGS}/again-{again}/{name}" if again else f"{LOGS}/{name}"


class Part(NamedTuple):
    """The bytes of a log, from ``begin`` to ``end``, that are taken from the chunk of this index."""

    chunk: int
    begin: int
    end: int


def joint(chunks: Sequence[tuple[int, int]]) -> list[Part]:
    """How chunks, given as offset and size, make up a log: none of its bytes twice, none skipped.

    What comes after a gap is left out; a chunk that was uploaded again may overlap the others.
    """
    parts: list[Part] = []
    end = 0
    for offset, size, index in sorted((*chunk, i) for i, chunk in enumerate(chunks)):
        if offset > end:
            break
        if offset + size > end:
            parts.append(Part(index, end, offset + size))
            end = offset + size
    return parts


def length(chunks: Sequence[tuple[int, int]]) -> int:
    """Bytes of a log that its chunks hold, from its beginning."""
    return max([0, *(part.end for part in joint(chunks))])
