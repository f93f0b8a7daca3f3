"""Perfetto's format: packets of Protocol Buffers, written with Perfetto's builder.

All packets are one sequence, ordered by time. Names are interned, and blocks of packets are compressed
within the format, so that readers need nothing else.
"""

from __future__ import annotations

import heapq
import zlib
from typing import Any, BinaryIO

from stallscope.errors import MissingExtraError

from .exported_run import ExportedRun
from .trace import Counter, Event, Process, Slice, Trace

_SEQUENCE = 1
# Packets per compressed block.
_AT_A_TIME = 4096
# Tracks are numbered from 1; numbers of processes must differ.
_FIRST_PROCESS = 1 << 32


def write_perfetto(exported: ExportedRun, file: BinaryIO) -> None:
    """Write the trace.

    Raises:
        MissingExtraError: if the package for it is not installed.
    """
    trace = Trace(exported)
    packets = _Packets(file)
    packets.clocks(exported.wall_ns)
    packets.root()
    # Processes are numbered after the ranks, as in the other format.
    after = max(exported.ranks, default=0) + 1
    for index, process in enumerate(trace.processes):
        note = exported.note if index == 0 else ""
        packets.process(process, index, after + index, note)
    for event in trace.events():
        packets.event(event)
    packets.close()


class _Packets:
    """Writes packets; keeps the end of each track's open slice until its time."""

    def __init__(self, file: BinaryIO) -> None:
        self._protos, builder = import_perfetto()
        self._file = builder(file)
        self._block = self._protos.Trace()
        self._open: list[tuple[int, int]] = []
        self._names: dict[tuple[str, str], int] = {}
        self._first = True
        event = self._protos.TrackEvent
        self._begin, self._end = event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END
        self._instant, self._counter = event.TYPE_INSTANT, event.TYPE_COUNTER
        packet = self._protos.TracePacket
        self._cleared = packet.SEQ_INCREMENTAL_STATE_CLEARED
        self._needed = packet.SEQ_NEEDS_INCREMENTAL_STATE

    def clocks(self, wall_ns: int | None) -> None:
        """Relate time 0 to wall time."""
        snapshot = self._packet(0).clock_snapshot
        builtin = self._protos.ClockSnapshot.Clock
        snapshot.clocks.add(clock_id=builtin.BOOTTIME, timestamp=0)
        if wall_ns is not None:
            snapshot.clocks.add(clock_id=builtin.REALTIME, timestamp=wall_ns)

    def root(self) -> None:
        """Declare an explicit order of processes."""
        descriptor = self._packet(0).track_descriptor
        descriptor.uuid = 0
        descriptor.process_ordering = descriptor.PROCESS_ORDERING_EXPLICIT

    def process(self, process: Process, index: int, pid: int, note: str) -> None:
        """Describe a process and its tracks."""
        parent = self._packet(0).track_descriptor
        parent.uuid = _FIRST_PROCESS + index
        parent.name = process.name
        parent.process.pid = pid
        parent.process.process_name = process.name
        parent.child_ordering = parent.EXPLICIT
        parent.sibling_order_rank = index
        if note:
            parent.description = note
        for order, track in enumerate(process.tracks):
            descriptor = self._packet(0).track_descriptor
            descriptor.uuid, descriptor.parent_uuid = track.id, parent.uuid
            descriptor.name = track.name
            descriptor.sibling_order_rank = order
            if track.unit is not None:
                descriptor.counter.unit_name = track.unit

    def event(self, event: Event) -> None:
        """Write an event, after the ends of slices before it."""
        self._close_until(event.begin)
        packet = self._packet(event.begin)
        track_event = packet.track_event
        track_event.track_uuid = event.track
        if isinstance(event, Counter):
            track_event.type = self._counter
            track_event.double_counter_value = event.value
            return
        track_event.name_iid = self._interned(packet, "event_names", event.name)
        if isinstance(event, Slice):
            track_event.type = self._begin
            self._slice_arguments(packet, event)
            heapq.heappush(self._open, (event.end, event.track))
            return
        track_event.type = self._instant
        for name, value in event.args.items():
            self._argument(packet, name, value)

    def close(self) -> None:
        """Write the remaining packets."""
        while self._open:
            self._close_until(self._open[0][0])
        self._flush()

    def _close_until(self, time: int) -> None:
        while self._open and self._open[0][0] <= time:
            end, track = heapq.heappop(self._open)
            track_event = self._packet(end).track_event
            track_event.type, track_event.track_uuid = self._end, track

    def _slice_arguments(self, packet: Any, event: Slice) -> None:
        self._argument(packet, "step", event.step)
        if event.epoch is not None:
            self._argument(packet, "epoch", event.epoch)
        self._argument(packet, "ms", event.ns / 1e6)
        if event.late_ns is not None:
            self._argument(packet, "lateness_ms", event.late_ns / 1e6)
        if event.last_rank is not None:
            self._argument(packet, "last_rank", event.last_rank)

    def _argument(self, packet: Any, name: str, value: str | int | float) -> None:
        iid = self._interned(packet, "debug_annotation_names", name)
        annotation = packet.track_event.debug_annotations.add(name_iid=iid)
        if isinstance(value, int):
            annotation.int_value = value
        elif isinstance(value, float):
            annotation.double_value = value
        else:
            annotation.string_value = value

    def _interned(self, packet: Any, table: str, name: str) -> int:
        """Return the number of a name; the packet defines a new one in a table."""
        iid = self._names.get((table, name))
        if iid is None:
            iid = self._names[table, name] = len(self._names) + 1
            getattr(packet.interned_data, table).add(iid=iid, name=name)
        return iid

    def _packet(self, time: int) -> Any:
        if len(self._block.packet) >= _AT_A_TIME:
            self._flush()
        flags = self._cleared if self._first else self._needed
        self._first = False
        return self._block.packet.add(
            timestamp=time, trusted_packet_sequence_id=_SEQUENCE, sequence_flags=flags
        )

    def _flush(self) -> None:
        packet = self._file.create_packet()
        packet.compressed_packets = zlib.compress(self._block.SerializeToString())
        self._file.write_packet(packet)
        self._block = self._protos.Trace()


def import_perfetto() -> tuple[Any, Any]:
    """Import the package's messages and its builder.

    Raises:
        MissingExtraError: if the package is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
    except ModuleNotFoundError as error:
        raise MissingExtraError("perfetto", error.name or "perfetto") from error
    return perfetto_trace_pb2, StreamingTraceProtoBuilder
