"""Read TFRecords, the frame of TensorBoard's events."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def _table() -> Iterator[int]:
    """Yield the CRC-32C table, one entry per byte."""
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        yield crc


_TABLE = tuple(_table())


def masked_checksum(data: bytes) -> int:
    """Return the CRC-32C of a few bytes as TFRecord writes it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records in a file, up to the first damage."""
    at = 0
    while at + 12 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        if length > len(data) - at - 16 or checksum != masked_checksum(data[at : at + 8]):
            return
        yield data[at + 12 : at + 12 + length]
        at += 16 + length
