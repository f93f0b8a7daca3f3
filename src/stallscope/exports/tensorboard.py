"""TensorBoard's event files, without TensorFlow: scalars need few fields of its messages.

The ``tensorboard`` package would write the same bytes, and brings gRPC and a server.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from stallscope.parsers.tfrecord import masked_checksum

from .generations import ExportedRun
from .scalars import scalars_of

#: TensorBoard finds files by the part ``tfevents`` of their names.
FILE_NAME = "events.out.tfevents.0.stallscope"
_VERSION = b"brain.Event:2"


def write_tensorboard(exported: ExportedRun, file: BinaryIO) -> None:
    """Write an event per window of steps."""
    scalars = scalars_of(exported)
    file.write(_record(_double(1, float(scalars.seconds[0])) + _bytes(3, _VERSION)))
    for step, seconds, values in scalars.points():
        summary = b"".join(
            _bytes(1, _bytes(1, name.encode()) + _float(2, value)) for name, value in values.items()
        )
        file.write(_record(_double(1, seconds) + _integer(2, step) + _bytes(5, summary)))


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
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
