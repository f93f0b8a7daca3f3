"""Collect step logs from records in other logs: executors' stderr, a driver's output, a log service.

The records of one log may be in several rolled files, and those of many ranks in one file. Their offsets
give the order; missing records are reported. Rolled files are cut when a buffer is full, so a record may
start at the end of one file and continue at the start of another. Launchers cut records anywhere to
insert labels and other ranks' output.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections import defaultdict
from dataclasses import dataclass, field

from stallscope.collector.recorder.step_log.sinks import RECORD
from stallscope.formatting.lists import counted
from stallscope.run import Problem

_MARK = b"stallscope:1:"
_RECORD = re.compile(RECORD)
# A line is no longer than a pipe's buffer.
_LONGEST_LINE = 8192
# The recorder packs at most a quarter of that into a record.
_MOST_BYTES = 64 << 10


@dataclass
class LogRecords:
    """The records of step logs in files: the pieces of each log (process and name) by offset."""

    pieces: dict[tuple[str, str], dict[int, bytes]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    #: First lines of files by folder, and incomplete records at the ends of files.
    _starts: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _broken_off: list[tuple[str, bytes]] = field(default_factory=list)

    #: Whether any record was found.
    any_records: bool = False

    @property
    def looked(self) -> bool:
        """Whether any file was searched."""
        return bool(self._starts)

    def merge(self, records: LogRecords) -> None:
        """Add the records of other files."""
        for log, pieces in records.pieces.items():
            self.pieces.setdefault(log, {}).update(pieces)
        for folder, starts in records._starts.items():
            self._starts[folder] += starts
        self._broken_off += records._broken_off
        self.problems += records.problems
        self.any_records = self.any_records or records.any_records

    def add(self, path: str, data: bytes) -> bool:
        """Collect the records of a file, and return whether there were any."""
        self._starts[_folder(path)].append(data[:_LONGEST_LINE].partition(b"\n")[0])
        # Most places have step logs only, and no printed output.
        from .launcher_output import may_contain, output_by_rank

        has_records = may_contain(data, _MARK)
        if has_records:
            # A launcher may have cut a record: search the output rank by rank.
            data = b"\n".join(output_by_rank(data).values())
        end = _broken_record(data)
        if end:
            self._broken_off.append((path, end))
        count, damaged = self._take(data[: len(data) - len(end)]) if has_records else (0, 0)
        if damaged:
            self._report_damaged(path, damaged)
        any_here = count > 0 or _MARK in end
        self.any_records = self.any_records or any_here
        return any_here

    def _take(self, data: bytes) -> tuple[int, int]:
        """Collect the records in bytes; return their number, and that of damaged ones."""
        if _MARK not in data:
            return 0, 0
        count = damaged = 0
        for key, name, offset, checksum, payload in _RECORD.findall(data):
            count += 1
            piece = _unpacked(payload)
            if piece is None or zlib.crc32(piece) != int(checksum, 16):
                damaged += 1
                continue
            log = self.pieces.setdefault((key.decode(), name.decode()), {})
            log[int(offset)] = piece
        return count, damaged

    def _complete_records(self) -> None:
        """Complete records at the ends of files with the starts of all files, if checksums agree."""
        for path, end in self._broken_off:
            # A file that merely ends with an "s" has no record: skip most starts.
            rest = b"" if _MARK in end else _MARK[len(end) :]
            starts = self._starts[_folder(path)]
            # Try all: short starts of records look alike, and several may be completed.
            tried = [self._take(end + start) for start in starts if start.startswith(rest)]
            whole = any(count > damaged for count, damaged in tried)
            if not whole and _RECORD.search(end):
                self._report_damaged(path, 1)
        self._broken_off.clear()

    def _report_damaged(self, path: str, count: int) -> None:
        self.problems.append(
            Problem(path, f"{counted(count, 'damaged record')} of step logs skipped")
        )

    def logs(self) -> list[tuple[str, bytes]]:
        """Return every log with its bytes up to the first gap, named as its file would be."""
        self._complete_records()
        logs = []
        for (key, name), pieces in sorted(self.pieces.items()):
            whole, lost = _joined(pieces)
            path = f"{name}.steps.csv"
            if lost:
                self.problems.append(
                    Problem(
                        f"{path} ({key})",
                        f"records are missing after byte {len(whole)}: "
                        f"{counted(lost, 'record')} after the gap skipped",
                    )
                )
            if whole:
                logs.append((path, whole))
        return logs


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _broken_record(data: bytes) -> bytes:
    """Return the start of a record at the end of a file; empty if the last record is whole."""
    line = data[data.rfind(b"\n") + 1 :][-_LONGEST_LINE:]
    at = line.rfind(_MARK)
    if at < 0:
        lengths = range(len(_MARK) - 1, 0, -1)
        length = next((n for n in lengths if line.endswith(_MARK[:n])), 0)
        return line[len(line) - length :] if length else b""
    match = _RECORD.match(line, at)
    return b"" if match and _is_whole(match[4], match[5]) else line[at:]


def _is_whole(checksum: bytes, payload: bytes) -> bool:
    piece = _unpacked(payload)
    return piece is not None and zlib.crc32(piece) == int(checksum, 16)


def _joined(pieces: dict[int, bytes]) -> tuple[bytes, int]:
    """Join pieces in order up to a gap, and count those after it."""
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
