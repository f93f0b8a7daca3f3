"""Decode traces with independent code, and compute their expected content from the ledger."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import simulator

from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.steps.alignment import align
from stallscope.exports import export_formats
from stallscope.exports.export_formats import write_export
from stallscope.exports.exported_run import Selection, exported_run
from stallscope.run import Run

NAMES = ("Other", "Input", "Compute", "Waiting for slow ranks", "Exposed allreduce")

#: Two hosts whose clocks differ, ends of epochs, and a rank that is slow from the middle on.
JOB = simulator.Job(
    ranks=4,
    steps=160,
    epochs=2,
    ranks_per_host=2,
    clocks=simulator.Clocks(offsets_ms=(0.0, 7000.0)),
    faults=[simulator.Fault("compute", 60, ranks=(2,), when=simulator.Between(80, 159))],
    validation_ms=300,
    checkpoint_ms=100,
    epoch_gap_ms=5,
)

ALL = Selection()

#: Name, begin, end.
Bar = tuple[str, int, int]


def simulated(**changes: object) -> Run:
    """Simulate the job with changes and return its run."""
    return simulator.simulate(replace(JOB, **changes)).run  # type: ignore[arg-type]


@dataclass
class Decoded:
    """The content of a trace; times are nanoseconds."""

    #: By process and track.
    slices: dict[tuple[str, str], list[Bar]] = field(default_factory=dict)
    #: Of each slice, in the same order.
    args: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    marks: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    #: The times of all events in file order.
    order: list[int] = field(default_factory=list)
    wall_ns: int | None = None

    def add(self, place: tuple[str, str], bar: Bar, args: dict[str, Any]) -> None:
        self.slices.setdefault(place, []).append(bar)
        self.args.setdefault(place, []).append(args)


def exported(
    run: Run, name: str, folder: Path, selection: Selection = ALL, file: str = "out"
) -> Path:
    path = folder / file
    write_export(export_formats.by_name(name), exported_run(run, selection), path)
    return path


def decoded(run: Run, name: str, folder: Path, selection: Selection = ALL) -> Decoded:
    path = exported(run, name, folder, selection, f"{name}.trace")
    return read_perfetto(path) if name == "perfetto" else read_chrome(path)


def expected(run: Run) -> dict[tuple[str, int], list[Bar]]:
    """Return, per host and rank, the slices of its stages in order."""
    (generation,) = set(run.steps["generation"].to_pylist())
    aligned = align(run, generation)
    ledger = build_ledger(aligned)
    zero = min(begin for begin in aligned.begin[0].tolist())
    bars: dict[tuple[str, int], list[Bar]] = {}
    for at, rank in enumerate(ledger.ranks):
        rank_bars = bars.setdefault((aligned.hosts[at], rank), [])
        for step in range(len(ledger)):
            time = int(ledger.reduced[step] - ledger.total[step]) - zero
            stages = [ledger.other, ledger.input, ledger.compute, ledger.wait]
            lengths = [int(stage[step, at]) for stage in stages]
            for name, length in zip(NAMES, [*lengths, int(ledger.allreduce[step])], strict=True):
                if length:
                    rank_bars.append((name, time, time + length))
                time += length
            assert time == int(ledger.reduced[step]) - zero
    return bars


def read_chrome(path: Path) -> Decoded:
    """Read times as decimals, so that floats lose no nanosecond."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    document = json.loads(data, parse_float=Decimal, parse_constant=_refuse)
    trace = Decoded(wall_ns=document["otherData"]["wall_ns_at_0"])
    names: dict[Any, str] = {}
    for event in document["traceEvents"]:
        kind, thread = event["ph"], (event["pid"], event["tid"])
        if kind == "M":
            if event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"]
                trace.processes.append(event["args"]["name"])
            elif event["name"] == "thread_name":
                names[thread] = event["args"]["name"]
            continue
        time = _ns(event["ts"])
        trace.order.append(time)
        args = {
            k: float(v) if isinstance(v, Decimal) else v for k, v in event.get("args", {}).items()
        }
        if kind == "X":
            bar = (event["name"], time, time + _ns(event["dur"]))
            trace.add((names[event["pid"]], names[thread]), bar, args)
        elif kind == "C":
            (value,) = args.values()
            trace.counters.setdefault(event["name"], []).append((time, value))
        else:
            assert kind == "i"
            trace.marks.append((event["name"], time, args))
    return trace


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _ns(us: Decimal | int) -> int:
    ns = us * 1000
    assert ns == int(ns)
    return int(ns)


def packets_of(path: Path) -> Iterator[Any]:
    """Return the packets of a trace, those that were compressed together one by one."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    for packet in trace.packet:
        if packet.HasField("compressed_packets"):
            inner = Trace()
            inner.ParseFromString(zlib.decompress(packet.compressed_packets))
            yield from inner.packet
        else:
            yield packet


def read_perfetto(path: Path) -> Decoded:
    trace = Decoded()
    tracks: dict[int, Any] = {}
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    open_: dict[int, tuple[str, int, dict[str, Any]]] = {}
    cleared = False
    for packet in packets_of(path):
        flags = packet.sequence_flags
        assert packet.trusted_packet_sequence_id == 1
        assert cleared or flags & 1
        cleared = True
        names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
        arguments.update(
            (entry.iid, entry.name) for entry in packet.interned_data.debug_annotation_names
        )
        for clock in packet.clock_snapshot.clocks:
            if clock.clock_id == clock.REALTIME:
                trace.wall_ns = clock.timestamp
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            tracks[descriptor.uuid] = descriptor
            if descriptor.HasField("process"):
                trace.processes.append(descriptor.name)
        if packet.HasField("track_event"):
            trace.order.append(packet.timestamp)
            _event(trace, packet, tracks, names, arguments, open_)
    assert not open_
    return trace


def _event(
    trace: Decoded,
    packet: Any,
    tracks: dict[int, Any],
    names: dict[int, str],
    arguments: dict[int, str],
    open_: dict[int, tuple[str, int, dict[str, Any]]],
) -> None:
    event = packet.track_event
    track = tracks[event.track_uuid]
    args = {
        arguments[annotation.name_iid]: getattr(annotation, annotation.WhichOneof("value"))
        for annotation in event.debug_annotations
    }
    if event.type == event.TYPE_SLICE_BEGIN:
        assert track.uuid not in open_
        open_[track.uuid] = (names[event.name_iid], packet.timestamp, args)
    elif event.type == event.TYPE_SLICE_END:
        name, begin, slice_args = open_.pop(track.uuid)
        place = (tracks[track.parent_uuid].name, track.name)
        trace.add(place, (name, begin, packet.timestamp), slice_args)
    elif event.type == event.TYPE_COUNTER:
        value = event.double_counter_value
        trace.counters.setdefault(track.name, []).append((packet.timestamp, value))
    else:
        assert event.type == event.TYPE_INSTANT
        trace.marks.append((names[event.name_iid], packet.timestamp, args))
