"""Join chunks to logs, at a server or in a copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from .chunk_names import ChunkName, ChunkPart, chunk_name, join_parts
from .source import SourceFile

_Chunk = tuple[ChunkName, SourceFile]


def join_chunks(files: Iterable[SourceFile]) -> list[SourceFile]:
    """Replace all chunks of a log by one file with the name of their folder."""
    files_found: list[SourceFile] = []
    logs: dict[tuple[str, str], list[_Chunk]] = defaultdict(list)
    for file in files:
        folder, _, last = file.name.rpartition("/")
        name = chunk_name(last)
        if name is None or not folder or file.problem:
            files_found.append(file)
        else:
            logs[folder, name.fingerprint].append((name, file))
    log_names: set[str] = set()
    for (folder, fingerprint), chunks in sorted(logs.items()):
        # Two simultaneous uploads leave two logs in one folder.
        log = folder if folder not in log_names else f"{fingerprint}/{folder}"
        log_names.add(log)
        files_found.append(_log(log, chunks))
    return sorted(files_found, key=lambda file: file.name)


def _log(name: str, chunks: Sequence[_Chunk]) -> SourceFile:
    parts = join_parts([(chunk.offset, file.size) for chunk, file in chunks])

    def read_range(start: int, end: int | None) -> bytes:
        return b"".join(
            _overlap(*chunks[part.chunk], part, start, end)
            for part in parts
            if part.end > start and (end is None or part.start < end)
        )

    fingerprint, first = chunks[0][0].fingerprint, chunks[0][1]
    size = parts[-1].end if parts else 0
    where = first.where.rpartition("/")[0]
    return SourceFile(name, where, size, f"{fingerprint}-{size}", read_range)


def _overlap(
    name: ChunkName, file: SourceFile, part: ChunkPart, start: int, end: int | None
) -> bytes:
    """Read the chunk's bytes that lie between ``start`` and ``end`` of its log."""
    first = max(part.start, start) - name.offset
    return file.read(first, (part.end if end is None else min(part.end, end)) - name.offset)
