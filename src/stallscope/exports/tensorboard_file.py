"""TensorBoard's event files, without TensorFlow: scalars need few fields of its messages.

The ``tensorboard`` package would write the same bytes, and brings gRPC and a server.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from stallscope.parsers.formats.tensorboard import masked_checksum, records

from .export_formats import TENSORBOARD_FILE
from .exported_run import ExportedRun
from .scalars import Point, scalars_of

_VERSION = b"brain.Event:2"
# Length and checksums of a record.
_FRAME = 16


def write_tensorboard(exported: ExportedRun, file: BinaryIO) -> None:
    """Write an event per window of steps."""
    scalars = scalars_of(exported)
    file.write(_header(float(scalars.seconds[0])))
    for point in scalars.points():
        file.write(_event(point))


class TensorboardSeries:
    """Appends points to the events in a folder."""

    def __init__(self, folder: Path) -> None:
        """Open the folder's file, and drop an incomplete last event.

        Raises:
            OSError: if it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / TENSORBOARD_FILE
        events = list(records(path.read_bytes())) if path.exists() else []
        self._file = path.open("ab")
        self._file.truncate(sum(_FRAME + len(event) for event in events))
        self._is_new = not events
        #: The step of the last point; -1 without any.
        self.last_step = max(map(_step_of, events), default=-1)

    def add(self, exported: ExportedRun, points: Sequence[Point]) -> None:
        """Write points at once."""
        header = _header(points[0][1]) if self._is_new else b""
        self._file.write(header + b"".join(map(_event, points)))
        self._file.flush()
        self._is_new, self.last_step = False, points[-1][0]

    def close(self) -> None:
        self._file.close()


def _header(seconds: float) -> bytes:
    return _record(_double(1, seconds) + _bytes(3, _VERSION))


def _event(point: Point) -> bytes:
    step, seconds, values = point
    summary = b"".join(
        _bytes(1, _bytes(1, name.encode()) + _float(2, value)) for name, value in values.items()
    )
    return _record(_double(1, seconds) + _integer(2, step) + _bytes(5, summary))


def _step_of(event: bytes) -> int:
    """Return the step of an event of ``_event``; -1 for others."""
    # The time is 9 bytes, and the step is next.
    if len(event) < 11 or event[9] != 2 << 3:
        return -1
    step, place = 0, 10
    for at in range(place, len(event)):
        step |= (event[at] & 0x7F) << 7 * (at - place)
        if event[at] < 0x80:
            break
    return step


def _record(data: bytes) -> bytes:
    """Frame a message: its length, its bytes, and a checksum of each."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_checksum(data))


# Fields of protobuf: a number and a type, then the value.


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
