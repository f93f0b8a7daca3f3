"""Spark's event logs as Spark writes them: compressed by its own codecs, rolled into parts, and long.

``neighbours/spark-event-log.{lz4,snappy,lzf,zstd}`` is the log of that name as the codecs of Spark 3.5
wrote it, flushed in between.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.step_logs import Job, run_of_job

from stallscope.collector.sources.source import SourceFile
from stallscope.parsers import read
from stallscope.parsers.files.spark_blocks import lz4_blocks
from stallscope.parsers.files.unpacking import unpacked_whole
from stallscope.parsers.formats import spark
from stallscope.parsers.formats.spark import applications, read_event_log, spark_events
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.run import Event

NEIGHBOURS = Path(__file__).parent / "neighbours"
REAL = gzip.decompress((NEIGHBOURS / "spark-event-log.gz").read_bytes())
CODECS = ("lz4", "snappy", "lzf", "zstd")
APPLICATION = "app-20261121230239-0000"
ROLLED = f"eventlog_v2_{APPLICATION}"
KIB = 1 << 10


def given(name: str, data: bytes) -> SourceFile:
    return SourceFile(name, name, len(data), "", lambda start, end: data[start:end])


def events_of(events: list[Event]) -> list[tuple[str, str, int | None]]:
    return [(event.kind, event.what, event.wall_ns) for event in events]


WHOLE = events_of(spark_events("log", REAL))


def packed(codec: str) -> bytes:
    return (NEIGHBOURS / f"spark-event-log.{codec}").read_bytes()


@pytest.mark.parametrize("codec", CODECS)
def test_logs_compressed_by_sparks_codecs_read_like_uncompressed_ones(codec: str) -> None:
    assert unpacked_whole("x", packed(codec)).data == REAL
    # Applications that ran again append.
    assert unpacked_whole("x", packed(codec) * 2).data == REAL * 2
    log = read_event_log([given(f"{APPLICATION}.{codec}", packed(codec))])
    assert events_of(log.events) == WHOLE
    assert log.problems == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_log_gives_its_whole_part(codec: str) -> None:
    data = packed(codec) * 3
    whole = unpacked_whole("x", data[: len(data) * 5 // 6]).data
    assert (REAL * 3).startswith(whole)
    # Arrow keeps an incomplete piece of zstd to itself.
    assert len(whole) > 2 * len(REAL) - 512


@pytest.mark.parametrize("codec", CODECS)
def test_damage_loses_only_what_follows(codec: str) -> None:
    rng = random.Random(codec)
    for _ in range(200):
        data = bytearray(packed(codec))
        data[rng.randrange(12, len(data))] ^= 1 << rng.randrange(8)
        log = read_event_log([given(f"{APPLICATION}.{codec}", bytes(data))])
        assert all(problem.what for problem in log.problems)


@pytest.mark.parametrize(
    "data",
    [
        # No writer of these codecs gives such lengths: no memory is allocated for them.
        b"LZ4Block\x2f" + b"\xff\xff\xff\x7f" * 3,
        b"LZ4Block\x20" + b"\x08\0\0\0" + b"\0\0\0\x7f" + b"\0" * 12,
        b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + b"\x7f\xff\xff\xff" + b"x" * 99,
        b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + b"\0\0\0\x09" + b"\xff\xff\xff\xff\x07" + b"x" * 4,
        b"\x82SNAPPY\0",
        b"ZV\1\0\2\xff\xff\xe0\xff",
        b"ZV\1\0\4\xff\xff\xe0",
        b"\x28\xb5\x2f\xfdnonsense",
    ],
)
def test_invalid_blocks_are_an_error_of_one_sentence(data: bytes) -> None:
    tracemalloc.start()
    log = read_event_log([given(f"{APPLICATION}.lz4", data)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (problem,) = log.problems
    assert problem.what == "the compressed file is empty or damaged"
    # Eight of them are one request.
    assert peak < 64 << 20


def test_overlapping_repetitions_of_lzf_are_repeated() -> None:
    # "a", then 300 bytes from one byte before: Ning's writer encodes a run like this.
    long = b"ZV\1" + (5).to_bytes(2, "big") + (1 + 264).to_bytes(2, "big") + b"\0a\xe0\xff\0"
    assert unpacked_whole("x", long + b"ZV\0\0\3end").data == b"a" * 265 + b"end"


def rolled(parts: list[bytes], *, compacted: bytes | None = None) -> list[SourceFile]:
    files = [
        given(f"logs/{ROLLED}/events_{number}_{APPLICATION}", part)
        for number, part in enumerate(parts, 1)
    ]
    if compacted is not None:
        name = f"logs/{ROLLED}/events_{len(parts) - 1}_{APPLICATION}.compact"
        files.append(given(name, compacted))
    files.append(given(f"logs/{ROLLED}/appstatus_{APPLICATION}", b""))
    return sorted(files, key=lambda file: file.name)


def lines_of(data: bytes, count: int) -> list[bytes]:
    lines = data.splitlines(keepends=True)
    return [b"".join(lines[at : at + count]) for at in range(0, len(lines), count)]


def test_facts_of_a_part_are_known_in_the_next_ones() -> None:
    parts = lines_of(REAL, 3)
    # Ten and more: by name the tenth comes before the second.
    assert len(parts) > 10
    (files,) = applications(rolled(parts))
    assert [file.name.split("_")[3] for file in files] == [f"{n + 1}" for n in range(len(parts))]
    log = read_event_log(files)
    assert events_of(log.events) == WHOLE
    assert {event.where for event in log.events} < {file.name for file in files}


def test_parts_replaced_by_a_compacted_one_are_not_read_twice() -> None:
    first, middle, last = lines_of(REAL, 12)
    (files,) = applications(rolled([first, middle, last], compacted=first + middle))
    assert [file.name.rpartition("/")[2] for file in files] == [
        f"events_2_{APPLICATION}.compact",
        f"events_3_{APPLICATION}",
    ]
    assert events_of(read_event_log(files).events) == WHOLE


def test_a_rolled_log_next_to_step_logs_adds_to_their_run(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, Job(ranks=2, steps=300))
    assert run.started_at is not None
    later = int(run.started_at.timestamp() * 1000) - 1795302199182
    data = re.sub(
        rb"(?<!\d)179530[0-9]{7}(?!\d)", lambda match: b"%d" % (int(match[0]) + later), REAL
    )
    (tmp_path / ROLLED).mkdir()
    for file in rolled(lines_of(data, 17)):
        (tmp_path / ROLLED / file.name.rpartition("/")[2]).write_bytes(file.read())
    (run,) = read(str(tmp_path))
    assert [event.kind for event in run.events] == [kind for kind, _, _ in WHOLE]
    assert run.problems == ()
    formats = [file.format for file in inspect(str(tmp_path)).files if file.path.startswith(ROLLED)]
    assert formats == [None, "spark-events", "spark-events"]


def test_a_long_log_is_read_at_its_start_with_a_note() -> None:
    log = read_event_log(rolled(lines_of(REAL, 17))[1:], most=20 * KIB)
    assert 0 < len(log.events) < len(WHOLE)
    (problem,) = log.problems
    assert problem.where.endswith(f"events_2_{APPLICATION}")
    assert problem.what == "only the first 20,480 bytes of this application's log were looked at"


def test_endless_events_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_MOST_EVENTS", 5)
    log = read_event_log([given(APPLICATION, REAL)])
    assert events_of(log.events) == WHOLE[:5]
    assert "the first 5 events" in log.problems[0].what


def test_a_block_shorter_than_its_header_is_damaged() -> None:
    """Arrow returns uninitialized memory for the rest."""
    line = b'{"Event":"x"}\n'
    inner = bytes(pa.Codec("lz4_raw").compress(line, asbytes=True))
    block = b"LZ4Block\x2b" + len(inner).to_bytes(4, "little") + (5000).to_bytes(4, "little")
    blocks = lz4_blocks(io.BytesIO(block + b"\0" * 4 + inner))
    with pytest.raises(ValueError, match="not as long as it says"):
        blocks.read1(10_000)


@pytest.mark.parametrize("between", [b"\n", b" "])
def test_a_bomb_takes_no_memory(between: bytes) -> None:
    """Half a gigabyte in some kilobytes, as lines and as one line."""
    codec = pa.Codec("lz4_raw")
    block = b"{}" * (1 << 19) + between
    inner = bytes(codec.compress(block, asbytes=True))
    lengths = len(inner).to_bytes(4, "little") + len(block).to_bytes(4, "little")
    bomb = (b"LZ4Block\x2b" + lengths + b"\0" * 4 + inner) * 512
    start = b'{"Event":"x"}\n'
    head = b"LZ4Block\x10" + len(start).to_bytes(4, "little") * 2 + b"\0" * 4 + start
    tracemalloc.start()
    log = read_event_log([given(f"{APPLICATION}.lz4", head + bomb + packed("lz4"))])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 << 20
    # Content after it is read as well; on a separate line.
    assert len(log.events) >= len(WHOLE) - 1


def test_the_name_alone_does_not_make_an_event_log() -> None:
    log = read_event_log([given(f"eventlog/{APPLICATION}", b"hello\n" * 9)])
    assert (log.events, log.problems, log.files) == ([], [], [])


@pytest.fixture(autouse=True)
def no_tracing_is_left() -> Iterator[None]:
    yield
    tracemalloc.stop()
