"""The fuzzed functions by name: everything that reads bytes of logs."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle

from support.parser_contract import PATTERN, holds

from stallscope.errors import NotFoundError, UnreadableError
from stallscope.parsers import PARSERS
from stallscope.parsers.files.unpacking import unpacked_whole
from stallscope.parsers.formats.autotune import is_autotune_log, parse_autotune
from stallscope.parsers.formats.flight_recorder import compare, parse_dump
from stallscope.parsers.formats.horovod_timeline import TimelineReader, is_timeline
from stallscope.parsers.formats.kineto.kineto_reader import read_spans
from stallscope.parsers.formats.measurements import parse_input_times, parse_network_check
from stallscope.parsers.launcher_output import (
    LONGEST_LINE,
    LineFilter,
    line_blocks,
    output_by_rank,
    rank_lines,
)
from stallscope.parsers.log_records import LogRecords
from stallscope.parsers.registry import by_name, embedded
from stallscope.parsers.runs.reading import Reading
from stallscope.run import Run

Target = Callable[[bytes], object]

#: Separates files in an input that is a folder of them.
BETWEEN_FILES = b"\n==> next file <==\n"
# Splits small inputs into many blocks.
_BLOCK_BYTES = 61
_SMALL = 1 << 16
_FILTER = LineFilter((b"s - ", b"Epoch "), updates=(b" - ETA: ",))
_NAMES = (
    "log",
    "rank-00000.0.0.steps.csv",
    "rank.1/stdout",
    "rank-00000.input.json",
    "benchmark|a|b|c|1|2|d|e|f|2|-16|1|40|0.001|32.log",
    "trace_rank_0",
)


def _parser(name: str) -> Target:
    parser = by_name(name)

    def target(data: bytes) -> None:
        parser.recognises("log", data)
        holds(parser, data)

    return target


def _or_unreadable(read: Target) -> Target:
    """Accept an error of Stallscope's as well as a result."""

    def target(data: bytes) -> None:
        with suppress(UnreadableError):
            read(data)

    return target


def _blocks(data: bytes) -> tuple[int, ...]:
    return (_BLOCK_BYTES, 2 << 20) if len(data) < _SMALL else (2 << 20,)


def _kineto(data: bytes) -> None:
    by_name("kineto").recognises("log", data)
    holds(by_name("kineto"), data)
    if len(data) < _SMALL:
        read_spans(io.BytesIO(data), 16 * _BLOCK_BYTES)


def _timeline(data: bytes) -> None:
    is_timeline(data)
    for block_bytes in _blocks(data):
        reader = TimelineReader("some/log", io.BytesIO(data), block_bytes)
        for rows in reader.block_rows():
            assert (rows.activities.begin <= rows.activities.end).all()


def _autotune(data: bytes) -> None:
    is_autotune_log(data)
    parse_autotune("some/log", data)


def _flight_recorder(data: bytes) -> None:
    """Read the dumps of ranks 0, 1 …, and compare them."""
    dumps = [
        parse_dump("some/log", part, prefix="log_", rank=rank)
        for rank, part in enumerate(data.split(BETWEEN_FILES))
    ]
    assert all("\n" not in event.what for event in compare(dumps).events)


def _launchers(data: bytes) -> None:
    streams = output_by_rank(data)
    assert sum(map(len, streams.values())) <= len(data)
    for block_bytes in _blocks(data):
        every = {line.text for line in rank_lines(data, block_bytes)}
        assert {line.text for line in rank_lines(data, block_bytes, only=_FILTER)} <= every
        shown = {
            lines.block.bytes[first:last].tobytes()
            for lines in line_blocks(data, block_bytes)
            for first, last in zip(lines.start, lines.end, strict=True)
        }
        assert {text[:LONGEST_LINE] for text in shown if text} == every
        for line in rank_lines(data, block_bytes):
            assert line.timestamp is None or abs(line.timestamp.ns) < 2**63


def _records(data: bytes) -> None:
    records = LogRecords()
    for part in data.split(BETWEEN_FILES):
        records.add("some/log", part)
    records.logs()


def _events(data: bytes) -> None:
    for embedded_format in embedded():
        assert all(
            "\n" not in event.what for event in embedded_format.read("some/log", data).events
        )


def whole(data: bytes) -> list[Run]:
    """Return the runs in a folder of such files, as ``stallscope.parsers.read`` reads them."""
    reading = Reading()
    for name, part in zip(cycle(_NAMES), data.split(BETWEEN_FILES), strict=False):
        try:
            reading.add_file(name, f"some/{name}", unpacked_whole(name, part).data)
        except (UnreadableError, NotFoundError) as error:
            reading.failed(name, error)
    runs = reading.runs("some", reading.records_logs())
    for run in runs:
        assert run.ranks
        assert run.size > max(run.ranks)
        assert run.status
        assert run.started_at is None or run.name
    return runs


#: The targets by name.
TARGETS: dict[str, Target] = {
    **{parser.name: _parser(parser.name) for parser in PARSERS},
    "kineto": _kineto,
    "line-pattern": _parser(PATTERN),
    "launchers": _launchers,
    "records": _records,
    "events": _events,
    "timeline": _or_unreadable(_timeline),
    "autotune": _or_unreadable(_autotune),
    "flight-recorder": _or_unreadable(_flight_recorder),
    "netcheck": _or_unreadable(lambda data: parse_network_check("some/log", data)),
    "input-times": _or_unreadable(lambda data: parse_input_times("some/log", data)),
    "whole": whole,
}
