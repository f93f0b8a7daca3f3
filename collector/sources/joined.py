"""Chunks back into the logs that they are of, wherever they are: at a server, or copied from one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from .base import SourceFile
from .chunk_names import ChunkName, Part, chunk_name, joint

_Chunk = tuple[ChunkName, SourceFile]


def joined(files: Iterable[SourceFile]) -> list[SourceFile]:
    """Files, with one in the place of all chunks of a log, which is named as their folder is."""
    whole: list[SourceFile] = []
    logs: dict[tuple[str, str], list[_Chunk]] = defaultdict(list)
    for file in files:
        folder, _, last = file.name.rpartition("/")
        name = chunk_name(last)
        if name is None or not folder:
            whole.append(file)
        else:
            logs[folder, name.fingerprint].append((name, file))
    found: set[str] = set()
    for (folder, fingerprint), chunks in sorted(logs.items()):
        # Two logs in one folder are what two uploads at the same moment leave.
        log = folder if folder not in found else f"{fingerprint}/{folder}"
        found.add(log)
        whole.append(_log(log, chunks))
    return sorted(whole, key=lambda file: file.name)


def _log(name: str, chunks: Sequence[_Chunk]) -> SourceFile:
    parts = joint([(chunk.offset, file.size) for chunk, file in chunks])

    def reads(start: int, end: int | None) -> bytes:
        return b"".join(
            _taken(*chunks[part.chunk], part, start, end)
            for part in parts
            if part.end > start and (end is None or part.begin < end)
        )

    fingerprint, first = chunks[0][0].fingerprint, chunks[0][1]
    size = parts[-1].end if parts else 0
    where = first.where.rpartition("/")[0]
    return SourceFile(name, where, size, f"{fingerprint}-{size}", reads)


def _taken(name: ChunkName, file: SourceFile, part: Part, start: int, end: int | None) -> bytes:
    """What a chunk has of the bytes from ``start`` to ``end`` of its log."""
    begin = max(part.begin, start) - name.offset
    return file.read(begin, (part.end if end is None else min(part.end, end)) - name.offset)
