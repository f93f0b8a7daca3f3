"""Lines that ``srun --label`` has cut, put together again.

srun sends what a task prints in messages of at most 1,024 bytes. A message that ends within a line gets
an end of a line from srun, and what follows gets a label of its own: of longer lines every 1,024 bytes
are a line. Both streams of a task have one label, so that what the other one has may stand in between:
most often records or warnings among the pieces of a bar, that is written over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

Whose = TypeVar("Whose")

#: Of a task's line, in each of srun's; a line of the task's own has less before its end.
CUT_BYTES = 1024
#: More than a line of srun's has with its label.
LONGEST_CUT_LINE = 2 * CUT_BYTES

_CUT = re.compile(rb"(?:P\d+ )? *\d{1,6}: [^\n]{%d}\n" % CUT_BYTES)
_BLOCK_BYTES = 4 << 20
# What bars are written over with.
_OVER = re.compile(rb"[\r\b]")
_COUNT = re.compile(rb"(\d+)/(\d+)")
# Lines that take more than a few pieces do not wait for their ends.
_MOST_PIECES = 16


def has_cut_lines(data: bytes) -> bool:
    """Whether srun has cut any line of a text that it has labelled."""
    blocks = range(0, len(data), _BLOCK_BYTES)
    return any(_has(data[at : at + _BLOCK_BYTES + LONGEST_CUT_LINE]) for at in blocks)


def _has(block: bytes) -> bool:
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    long = starts[ends - starts > CUT_BYTES]
    return any(_CUT.match(block, at) for at in long.tolist())


class CutLines(Generic[Whose]):
    """Takes out the ends of lines that srun has put in."""

    def __init__(self) -> None:
        self._open: dict[Whose, _Open] = {}

    @property
    def waits(self) -> bool:
        """Whether a line of anybody's goes on."""
        return bool(self._open)

    def mended(self, whose: Whose, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Add the next lines of a stream; cut lines wait for their rest."""
        own = self._open.pop(whose, None)
        if own is None:
            if not any(map(_is_cut, lines)):
                return lines
            own = _Open()
        mended = [piece for line in lines for piece in own.take(line)]
        if own.pieces or own.bar:
            self._open[whose] = own
        return mended

    def rest(self) -> Iterator[tuple[Whose, bytes]]:
        """What has waited in vain."""
        for whose, own in self._open.items():
            yield whose, b"".join([*own.pieces, b"\n"] if own.pieces else []) + own.bar
        self._open.clear()


@dataclass
class _Open:
    """Return the printed part of lines whose ends have not come."""

    #: Of a line that is not written over.
    pieces: list[bytes] = field(default_factory=list)
    #: The last piece of a bar, with the end that srun has given it.
    bar: bytes = b""

    def take(self, line: bytes) -> Iterator[bytes]:
        """Take the next line; what is known of them then."""
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
            # What is longer goes on with what follows.
            self.bar, self.pieces = b"", [b""] if _is_cut(line) else []


def _is_cut(line: bytes) -> bool:
    return len(line) == CUT_BYTES + 1 and line.endswith(b"\n")


def _ends(bar: bytes, line: bytes) -> bool:
    """Whether a bar ends with a line that is not written over: its count shows it."""
    count = _COUNT.search(_OVER.split(bar[:CUT_BYTES])[-1] + line)
    return count is not None and count[1] == count[2]
