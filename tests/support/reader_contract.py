"""Every kind of file: a complete sample of each, and the contract for reading any bytes as it."""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stallscope.collector.recorder.step_log.sinks import key_of, records
from stallscope.collector.sources.source import SourceFile
from stallscope.errors import StallscopeError
from stallscope.parsers.formats.autotune import is_autotune_log, parse_autotune
from stallscope.parsers.formats.flight_recorder import compare, parse_dump
from stallscope.parsers.formats.horovod_timeline import is_timeline, timeline_reader
from stallscope.parsers.formats.measurements import parse_input_times, parse_network_check
from stallscope.parsers.formats.spark import read_event_log
from stallscope.parsers.inspection.inspect_files import likely_content
from stallscope.parsers.registry import by_name, embedded
from stallscope.parsers.runs.reading import Reading
from stallscope.run import Event

from .input_times import measured
from .network_checks import network_check
from .parser_contract import HERE, NAMES, PATTERN, SAMPLES, holds
from .step_logs import Job, write_job

APPLICATION = "app-20261121230239-0000"


@dataclass(frozen=True)
class Reader:
    """One kind of file."""

    #: Makes a complete one.
    sample: Callable[[Path], bytes]
    #: Reads bytes as this kind, and checks the result or its error.
    holds: Callable[[bytes], object]
    #: Its name in ``inspect``; None if no parser reads it.
    format: str | None
    #: Names of such files, if the name decides.
    file_name: str = "log"


def in_a_sentence(read: Callable[[bytes], object], data: bytes) -> object:
    """Read bytes; return nothing after an error, which must be one sentence."""
    try:
        return read(data)
    except StallscopeError as error:
        message = str(error)
    assert message.startswith("some/log: ")
    assert "\n" not in message
    return None


def _timeline(data: bytes) -> int:
    is_timeline(data)
    reader = timeline_reader("some/log", io.BytesIO(data))
    count = 0
    for rows in reader.block_rows():
        assert (rows.activities.begin <= rows.activities.end).all()
        count += len(rows.activities.begin)
    return count


def _autotune(data: bytes) -> object:
    is_autotune_log(data)
    log = parse_autotune("some/log", data)
    assert all(
        math.isfinite(sample.score) and len(sample.environment) >= 2 for sample in log.samples
    )
    return log.samples


def _flight_recorder(data: bytes) -> object:
    dump = parse_dump("some/log", data, prefix="log_", rank=1)
    for event in compare([dump]).events:
        assert "\n" not in event.what
        assert event.wall_ns is None or 0 < event.wall_ns < 2**63
    return dump.entries


def _input_times(data: bytes) -> object:
    measurement = parse_input_times("some/log", data)
    assert measurement.ended >= measurement.began
    assert all(math.isfinite(stage.ms) for stage in measurement.stages)
    return measurement.batches


def _network_check(data: bytes) -> object:
    check = parse_network_check("some/log", data)
    assert 0 <= check.began < 2**63
    assert all(math.isfinite(us) for rounds in (*check.sweep, *check.tiny) for us in rounds.us)
    return check.size


def _records(data: bytes) -> object:
    reading = Reading()
    if not reading.records.add("some/log", data):
        return None
    return reading.records_logs() or reading.problems


def _events(name: str, data: bytes) -> Sequence[Event]:
    (reader,) = [reader for reader in embedded() if reader.name == name]
    events = reader.read("some/log", data).events
    for event in events:
        assert "\n" not in event.what
        for ns in (event.wall_ns, event.local_ns):
            assert ns is None or abs(ns) < 2**63
    return events


def _event_log(data: bytes) -> object:
    file = SourceFile("some/log", "some/log", len(data), "", lambda start, end: data[start:end])
    log = read_event_log([file])
    assert all("\n" not in problem.what for problem in log.problems)
    # In a folder with other files, an uncompressed event log is read at once.
    at_once = _events("spark-events", data)
    if at_once:
        assert [event.what for event in log.events] == [event.what for event in at_once]
    return log.events


def _nothing(data: bytes) -> str:
    return likely_content("log", data)


def _a_timeline(_: Path) -> bytes:
    declared = (
        b'{"name": "process_name", "ph": "M", "pid": %d, "args": {"name": "grads_%d"}},\n'
        b'{"name": "process_sort_index", "ph": "M", "pid": %d, "args": {"sort_index": %d}},\n'
    )
    activity = (
        b'{"ph": "B", "name": "ALLREDUCE", "ts": %d, "pid": %d},\n'
        b'{"ph": "E", "ts": %d, "pid": %d},\n'
    )
    text = b"[\n" + b"".join(declared % (at, at, at, at) for at in range(4))
    for step in range(40):
        text += b"".join(
            activity % (1000 * step + at, at, 1000 * step + at + 300, at) for at in range(4)
        )
    return text


def _some_records(folder: Path) -> bytes:
    write_job(folder, Job(ranks=2, steps=60))
    lines = []
    for path in sorted(folder.glob("*.steps.csv")):
        data, name = path.read_bytes(), path.name.removesuffix(".steps.csv")
        key = key_of(data.split(b"\n", 1)[0])
        for at in range(0, len(data), 1500):
            lines += records(key, name, at, data[at : at + 1500])
    return "".join(f"26/11/21 11:00:02 INFO stallscope: {line}\n" for line in lines).encode()


_STALLED = (
    b"[2026-11-21 02:28:4%d.236416: W /build/horovod/common/stall_inspector.cc:107] One or more tensors "
    b"were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for "
    b"remainder of ranks for more than 60 seconds. \n"
    b"Missing ranks:\n1: [grad_a, grad_b ...]\n3!: [grad_a]\n"
    b"Process %d exit with status code 137.\n"
)
_SPARKS = b"26/11/21 23:02:39 INFO SparkContext: Running Spark version 3.5.9\n"
_TUNED = (
    b"cache_enabled,cycle_time_ms,tensor_fusion_threshold,score\n"
    b" 0,1,4,6.60551\n 0,1,32,9.625\n 1,1,25.736,30.8562\n 1,1,61.2542,5.20242\n 1,1,25.736,30.8562\n"
)


def _parser(name: str) -> Reader:
    title = "pattern" if name == PATTERN else name
    return Reader(SAMPLES[name], partial(holds, by_name(name)), title)


def _companion(
    sample: Callable[[Path], bytes],
    read: Callable[[bytes], object],
    name: str | None,
    file_name: str = "log",
) -> Reader:
    return Reader(sample, partial(in_a_sentence, read), name, file_name)


#: Companion files of logs, by name.
COMPANIONS: dict[str, Reader] = {
    "records": _companion(_some_records, _records, "step-log"),
    "input-times": _companion(
        lambda _: json.dumps(measured()).encode() + b"\n",
        _input_times,
        "input-times",
        "rank-00000.0.input.json",
    ),
    "netcheck": _companion(
        lambda _: json.dumps(network_check()).encode() + b"\n",
        _network_check,
        "netcheck",
        "20231114T221320Z.0.netcheck.json",
    ),
    "flight-recorder": _companion(
        lambda _: (HERE / "flight" / "sleep" / "trace_rank_0").read_bytes(),
        _flight_recorder,
        "flight-recorder",
        "trace_rank_0",
    ),
    "autotune-log": _companion(lambda _: _TUNED, _autotune, "autotune-log"),
    "horovod-timeline": _companion(_a_timeline, _timeline, "horovod-timeline"),
    "job-messages": _companion(
        lambda _: b"".join(_STALLED % (at, at) for at in range(5)),
        partial(_events, "job-messages"),
        "job-messages",
    ),
    "spark-events": _companion(
        lambda _: gzip.decompress((HERE / "neighbours" / "spark-event-log.gz").read_bytes()),
        _event_log,
        "spark-events",
        APPLICATION,
    ),
    "spark": _companion(lambda _: _SPARKS * 9, _nothing, "spark", f"{APPLICATION}/0/stderr"),
    "foreign": _companion(lambda _: b"nothing that anybody knows\n" * 9, _nothing, None),
}

#: Every kind of file: by the parser's name, or by the kind.
READERS: dict[str, Reader] = {**{name: _parser(name) for name in NAMES}, **COMPANIONS}
