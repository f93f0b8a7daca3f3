"""Step logs that came as records of other logs: executors' stderr, a driver's output, a log service.

The records of one log may lie in several files (rolled ones), and those of many ranks in one. They are
put together again by the offsets that they carry; missing ones are reported. Rolled files are cut
wherever a buffer was full, so a record may begin at the end of one and go on at the beginning of
another. Launchers cut them anywhere to put their labels in, and pieces of other ranks' lines.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import defaultdict
from dataclasses import dataclass, field

from stallscope.collector.recorder.records import RECORD
from stallscope.run import Problem

from .cut_texts import may_hold
from .launchers import demultiplexed

_MARK = b"stallscope:1:"
# A line is no longer than what a pipe takes whole.
_LONGEST_LINE = 8192
# A recorder packs at most a quarter of that into a record; a larger one was made by another program.
_MOST_BYTES = 64 << 10


@dataclass
class LogRecords:
    """What was found so far: per log (process and name), its pieces by their offset."""

    pieces: dict[tuple[str, str], dict[int, bytes]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    #: By folder: first lines of its files, and records that break off at the end of one.
    _beginnings: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _broken_off: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def looked(self) -> bool:
        """Whether any file was looked through."""
        return bool(self._beginnings)

    def add(self, path: str, data: bytes) -> bool:
        """Take the records out of a file; whether there were any."""
        self._beginnings[_folder(path)].append(data[:_LONGEST_LINE].partition(b"\n")[0])
        data = _as_written(data)
        end = _broken_record(data)
        if end:
            self._broken_off.append((path, end))
        found, damaged = self._take(data[: len(data) - len(end)])
        if damaged:
            self._say_damaged(path, damaged)
        return found > 0 or _MARK in end

    def _take(self, data: bytes) -> tuple[int, int]:
        """Take the records out of bytes; how many there were, and how many of them are damaged."""
        if _MARK not in data:
            return 0, 0
        found = damaged = 0
        for key, name, offset, checksum, payload in RECORD.findall(data):
            found += 1
            piece = _unpacked(payload)
            if piece is None or zlib.crc32(piece) != int(checksum, 16):
                damaged += 1
                continue
            log = self.pieces.setdefault((key.decode(), name.decode()), {})
            log[int(offset)] = piece
        return found, damaged

    def _mend(self) -> None:
        """Try records that break off with every file that may continue them: checksums decide."""
        for path, end in self._broken_off:
            # Most files are cut elsewhere: do not look at all of them for one that ends with an "s".
            rest = b"" if _MARK in end else _MARK[len(end) :]
            beginnings = self._beginnings[_folder(path)]
            # All of them: records that break off early look alike, and several may be mended.
            tried = [self._take(end + one) for one in beginnings if one.startswith(rest)]
            whole = any(found > damaged for found, damaged in tried)
            if not whole and RECORD.search(end):
                self._say_damaged(path, 1)
        self._broken_off.clear()

    def _say_damaged(self, path: str, count: int) -> None:
        self.problems.append(Problem(path, f"{count} damaged record(s) of step logs skipped"))

    def logs(self) -> list[tuple[str, bytes]]:
        """Every log with its bytes up to the first gap, named as its file would be."""
        self._mend()
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


def _as_written(data: bytes) -> bytes:
    """What all ranks have written, one after another, where a launcher may have cut a record."""
    return b"\n".join(demultiplexed(data).values()) if may_hold(data, _MARK) else data


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _broken_record(data: bytes) -> bytes:
    """What a file ends with if that may be the beginning of a record; a whole one is none."""
    line = data[data.rfind(b"\n") + 1 :][-_LONGEST_LINE:]
    at = line.rfind(_MARK)
    if at < 0:
        lengths = range(len(_MARK) - 1, 0, -1)
        length = next((n for n in lengths if line.endswith(_MARK[:n])), 0)
        return line[len(line) - length :] if length else b""
    match = RECORD.match(line, at)
    return b"" if match and _is_whole(match[4], match[5]) else line[at:]


def _is_whole(checksum: bytes, payload: bytes) -> bool:
    piece = _unpacked(payload)
    return piece is not None and zlib.crc32(piece) == int(checksum, 16)


def _joined(pieces: dict[int, bytes]) -> tuple[bytes, int]:
    """The pieces in their order up to a gap, and how many lie after it."""
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
