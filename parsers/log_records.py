"""Step logs that came as records of other logs: executors' stderr, a driver's output, a log service.

The records of one log may lie in several files (rolled ones), and those of many ranks in one. They are
put together again by the offsets that they carry; what is missing is said.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass, field

from stallscope.collector.recorder.records import RECORD
from stallscope.run import Problem

_MARK = b"stallscope:1:"
# A recorder packs at most so much into a record; a larger one was made by somebody else.
_MOST_BYTES = 1 << 20


@dataclass
class LogRecords:
    """What was found so far: per log (process and name), its pieces by their offset."""

    pieces: dict[tuple[str, str], dict[int, bytes]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: str, data: bytes) -> bool:
        """Take the records out of a file; whether there were any."""
        if _MARK not in data:
            return False
        found = damaged = 0
        for key, name, offset, checksum, payload in RECORD.findall(data):
            found += 1
            piece = _unpacked(payload)
            if piece is None or zlib.crc32(piece) != int(checksum, 16):
                damaged += 1
                continue
            log = self.pieces.setdefault((key.decode(), name.decode()), {})
            log[int(offset)] = piece
        if damaged:
            self.problems.append(Problem(path, f"{damaged} damaged record(s) of step logs skipped"))
        return found > 0

    def logs(self) -> list[tuple[str, bytes]]:
        """Every log with its bytes up to the first gap, named as its file would be."""
        found = []
        for (key, name), pieces in sorted(self.pieces.items()):
            whole, lost = _joined(pieces)
            path = f"{name}.steps.csv"
            if lost:
                self.problems.append(
                    Problem(
                        f"{path} ({key})",
                        f"records are missing after byte {len(whole)}: "
                        f"{lost} record(s) behind the gap are not used",
                    )
                )
            if whole:
                found.append((path, whole))
        return found


def _joined(pieces: dict[int, bytes]) -> tuple[bytes, int]:
    """The pieces in their order up to a gap, and how many lie behind it."""
    whole = bytearray()
    offsets = sorted(pieces)
    for number, offset in enumerate(offsets):
        if offset > len(whole):
            return bytes(whole), len(offsets) - number
        whole += pieces[offset][len(whole) - offset :]
    return bytes(whole), 0


def _unpacked(payload: bytes) -> bytes | None:
    try:
        unpacking = zlib.decompressobj()
        piece = unpacking.decompress(base64.b64decode(payload, validate=True), _MOST_BYTES)
        return piece if unpacking.eof else None
    except (zlib.error, binascii.Error):
        return None
