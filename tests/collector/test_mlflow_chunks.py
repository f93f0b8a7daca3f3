"""Chunks are joined into their log in any order."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from stallscope.collector.sources.chunk_names import (
    ChunkName,
    chunk_name,
    fingerprint,
    joined_length,
)
from stallscope.collector.sources.pieces import join_chunks
from stallscope.collector.sources.source import SourceFile

LOG = bytes(range(200))
FOLDER = "stallscope/logs/rank-00000.0.0.steps.csv"
SPANS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=12)


def file(name: str, content: bytes) -> SourceFile:
    def reads(start: int, end: int | None) -> bytes:
        return content[start:end]

    return SourceFile(name, f"place/{name}", len(content), "1", reads)


def chunk(offset: int, content: bytes, log: str = "0a0b0c0d", folder: str = FOLDER) -> SourceFile:
    return file(f"{folder}/{ChunkName(offset, log)}", content)


@given(SPANS, st.integers(0, 210), st.one_of(st.none(), st.integers(0, 210)))
def test_the_log_is_joined_up_to_the_first_missing_chunk(
    spans: list[tuple[int, int]], start: int, end: int | None
) -> None:
    chunks = [(offset, LOG[offset : offset + size]) for offset, size in dict(spans).items()]
    covered = {at for offset, data in chunks for at in range(offset, offset + len(data))}
    whole = next(at for at in range(len(LOG) + 1) if at not in covered)
    files = join_chunks([chunk(offset, data) for offset, data in chunks])
    assert len(files) == bool(chunks)
    for log in files:
        assert log.name == FOLDER
        assert log.size == whole
        assert log.read() == LOG[:whole]
        assert log.read(start, end) == LOG[:whole][start:end]
    assert joined_length([(offset, len(data)) for offset, data in chunks]) == whole


def test_chunks_of_two_logs_are_never_mixed() -> None:
    left = [chunk(0, b"one,", "0000000a"), chunk(4, b"two", "0000000a")]
    right = [chunk(0, b"another,", "0000000b"), chunk(8, b"log", "0000000b")]
    [first, second] = join_chunks([*right, *left])
    assert {first.read(), second.read()} == {b"one,two", b"another,log"}
    assert first.name != second.name
    assert first.version != second.version


def test_only_the_needed_chunks_are_read() -> None:
    asked: list[str] = []

    def reads(name: str, start: int, end: int | None) -> bytes:
        asked.append(name)
        return b"x" * ((end or 10) - start)

    names = [f"{FOLDER}/{ChunkName(offset, '0a0b0c0d')}" for offset in (0, 10, 20)]
    files = [SourceFile(name, name, 10, "1", partial(reads, name)) for name in names]
    [log] = join_chunks(files)
    assert len(log.read(12, 18)) == 6
    assert asked == names[1:2]


def test_a_grown_log_has_another_version() -> None:
    [before] = join_chunks([chunk(0, b"one,")])
    [after] = join_chunks([chunk(0, b"one,"), chunk(4, b"two")])
    assert before.version != after.version


def test_other_files_stay_as_they_are() -> None:
    others = [file("notes.txt", b"n"), file("a/00000000000000000000.chunk", b"c")]
    top = file("00000000000000000000-0a0b0c0d.chunk", b"in no folder of a log")
    files = [*others, top]
    assert {source.name for source in join_chunks(files)} == {source.name for source in files}


def test_names_of_chunks_contain_their_start_and_sort_in_order() -> None:
    names = [
        str(ChunkName(offset, fingerprint(b"#stallscope 1 {}"))) for offset in (0, 9, 10, 10**12)
    ]
    assert names == sorted(names)
    offsets = [parsed.offset for name in names if (parsed := chunk_name(name))]
    assert offsets == [0, 9, 10, 10**12]
    assert chunk_name("rank-00000.0.0.steps.csv") is None
