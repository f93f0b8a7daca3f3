"""Trace Event JSON, which chrome://tracing and Perfetto read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from stallscope import __version__
from stallscope.formatting.plain import plain

from .exported_run import ExportedRun
from .trace import Counter, Event, Slice, Trace, Track

# Lines per write.
_AT_A_TIME = 10_000


class _Place(NamedTuple):
    """A track with the numbers of its process and thread."""

    pid: int
    tid: int
    track: Track


def write_chrome(exported: ExportedRun, file: BinaryIO) -> None:
    """Write the object form: times are microseconds with nanoseconds as decimals."""
    trace = Trace(exported)
    places = _places(trace)
    file.write(_opening(exported))
    lines: list[str] = [_json(event) for event in _names(trace, places)]
    for event in trace.events():
        lines.append(_line(event, places[event.track]))
        if len(lines) >= _AT_A_TIME:
            # Keep one event for the last line, which has no comma.
            file.write((",\n".join(lines[:-1]) + ",\n").encode("ascii"))
            lines = lines[-1:]
    file.write((",\n".join(lines) + "\n]}\n").encode("ascii"))


def _opening(exported: ExportedRun) -> bytes:
    facts = {
        "program": f"Stallscope {__version__}",
        "run": plain(exported.run.name),
        "run_id": plain(exported.run.id),
        "times": exported.note,
        "wall_ns_at_0": exported.wall_ns,
    }
    head = _json({"displayTimeUnit": "ms", "otherData": facts})
    return f'{head[:-1]},"traceEvents":[\n'.encode("ascii")


def _places(trace: Trace) -> dict[int, _Place]:
    """Number processes after the ranks, which are threads, because viewers show these numbers."""
    after = max(trace.exported.ranks, default=0) + 1
    return {
        track.id: _Place(after + index, track.rank or 0, track)
        for index, process in enumerate(trace.processes)
        for track in process.tracks
    }


def _names(trace: Trace, places: dict[int, _Place]) -> Iterator[dict[str, Any]]:
    for index, process in enumerate(trace.processes):
        pid = places[process.tracks[0].id].pid
        yield _metadata("process_name", pid, 0, process.name)
        yield _metadata("process_sort_index", pid, 0, index)
        for order, track in enumerate(process.tracks):
            if track.unit is None:
                tid = places[track.id].tid
                yield _metadata("thread_name", pid, tid, track.name)
                yield _metadata("thread_sort_index", pid, tid, order)


def _metadata(name: str, pid: int, tid: int, value: str | int) -> dict[str, Any]:
    # The argument has the name of the event's last word: a name, or a sort index.
    args = {name.partition("_")[2]: value}
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _line(event: Event, thread: _Place) -> str:
    place = f'"pid":{thread.pid},"tid":{thread.tid},"ts":{_us(event.begin)}'
    if isinstance(event, Slice):
        # Formatted by hand, because there are millions; names are constants and need no escapes.
        return (
            f'{{"ph":"X",{place},"dur":{_us(event.end - event.begin)},"name":"{event.name}",'
            f'"cat":"step","args":{{{_args(event)}}}}}'
        )
    if isinstance(event, Counter):
        args = _json({thread.track.unit: event.value})
        return f'{{"ph":"C",{place},"name":{_json(thread.track.name)},"args":{args}}}'
    return f'{{"ph":"i","s":"g",{place},"name":{_json(event.name)},"args":{_json(event.args)}}}'


def _args(event: Slice) -> str:
    parts = [f'"step":{event.step}']
    if event.epoch is not None:
        parts.append(f'"epoch":{event.epoch}')
    parts.append(f'"ms":{event.ns / 1e6!r}')
    if event.late_ns is not None:
        parts.append(f'"lateness_ms":{event.late_ns / 1e6!r}')
    if event.last_rank is not None:
        parts.append(f'"last_rank":{event.last_rank}')
    return ",".join(parts)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
