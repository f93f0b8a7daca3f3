"""Join lines that ``srun --label`` has cut.

srun sends the output of a task in messages of at most 1,024 bytes. If a message ends within a line, srun
adds a newline, and the next message gets a label: every 1,024 bytes of a longer line become a line. Both
streams of a task have the same label, so the other stream's output may be in between: most often
records or warnings among the pieces of a bar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

#: Bytes of a task's line in each message; a line without cuts is shorter.
CUT_BYTES = 1024
#: More than the length of a cut line with its label.
LONGEST_CUT_LINE = 2 * CUT_BYTES

_CUT = re.compile(rb"(?:P\d+ )? *\d{1,6}: [^\n]{%d}\n" % CUT_BYTES)
_BLOCK_BYTES = 4 << 20
# Characters that overwrite bars.
_OVER = re.compile(rb"[\r\b]")
_COUNT = re.compile(rb"(\d+)/(\d+)")
# Longer lines are returned before their ends are known.
_MOST_PIECES = 16


def has_cut_lines(data: bytes) -> bool:
    """Whether srun has cut any line of a labelled text."""
    blocks = range(0, len(data), _BLOCK_BYTES)
    return any(_has(data[at : at + _BLOCK_BYTES + LONGEST_CUT_LINE]) for at in blocks)


def _has(block: bytes) -> bool:
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    long = starts[ends - starts > CUT_BYTES]
    return any(_CUT.match(block, at) for at in long.tolist())


class CutLines:
    """Removes the line ends that srun has added."""

    def __init__(self) -> None:
        self._open: dict[int, _OpenLine] = {}

    @property
    def waits(self) -> bool:
        """Whether a line of any stream is unfinished."""
        return bool(self._open)

    def joined(self, stream: int, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Add the next lines of a stream, and return the complete ones without cuts."""
        open_line = self._open.pop(stream, None)
        if open_line is None:
            if not any(map(_is_cut, lines)):
                return lines
            open_line = _OpenLine()
        joined = [piece for line in lines for piece in open_line.add(line)]
        if open_line.pieces or open_line.bar:
            self._open[stream] = open_line
        return joined

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces that were never continued, by stream."""
        for stream, open_line in self._open.items():
            yield (
                stream,
                b"".join([*open_line.pieces, b"\n"] if open_line.pieces else []) + open_line.bar,
            )
        self._open.clear()


@dataclass
class _OpenLine:
    """The start of a stream's line, or of a bar, whose end was not read yet."""

    #: The pieces of a line that is not overwritten.
    pieces: list[bytes] = field(default_factory=list)
    #: The last piece of a bar, with srun's newline.
    bar: bytes = b""

    def add(self, line: bytes) -> Iterator[bytes]:
        """Add the next line, and yield the text that is then complete."""
        if _OVER.search(line.rstrip(b"\r\n")):
            yield self.bar[:CUT_BYTES]
            self.bar = line if _is_cut(line) else b""
            if not self.bar:
                yield line
        elif self.bar and _ends(self.bar, line):
            yield self.bar[:CUT_BYTES] + line
            self.bar = b""
        elif _is_cut(line) and len(self.pieces) < _MOST_PIECES:
            self.pieces.append(line[:CUT_BYTES])
        else:
            yield from (self.bar, *self.pieces)
            yield line[:CUT_BYTES] if _is_cut(line) else line
            # A longer line continues in the next message.
            self.bar, self.pieces = b"", [b""] if _is_cut(line) else []


def _is_cut(line: bytes) -> bool:
    return len(line) == CUT_BYTES + 1 and line.endswith(b"\n")


def _ends(bar: bytes, line: bytes) -> bool:
    """Whether a line is the end of a bar, by the bar's count of steps."""
    count = _COUNT.search(_OVER.split(bar[:CUT_BYTES])[-1] + line)
    return count is not None and count[1] == count[2]
