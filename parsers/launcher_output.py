"""The lines of ranks in what launchers and loggers print, and when they came.

Of a line counts what a terminal shows of it in the end: a progress bar is one line of megabytes, and all
of it but what follows the last carriage return was written over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .launchers import BLOCK_BYTES, LONGEST_PREFIX, pieces
from .stamps import Stamp, read_stamp

# What is longer is no line that people read.
_LONGEST_LINE = 64 << 10


class Line(NamedTuple):
    """What a terminal shows of a line in the end, without what a launcher put before it.

    A prefix of a logger's is still there.
    """

    #: None where no launcher says whose it is.
    rank: int | None
    stream: str
    text: bytes
    #: What may hold the stamp of when it came.
    before: bytes

    @property
    def stamp(self) -> Stamp | None:
        """When it came; None where that is not said."""
        return read_stamp(self.before)


def shown_lines(
    data: bytes, block_bytes: int = BLOCK_BYTES, *, wanted: Callable[[bytes], object] = bool
) -> Iterator[Line]:
    """The lines of all ranks, those of each stream in their order, a last one without an end as well.

    Args:
        wanted: only lines of which this says so, and the first one of each stream. Of all lines in
            large files, most of the time goes into making them.

    Beyond the data this needs the memory of a block and of one line per rank.
    """
    streams: dict[tuple[int | None, str], _Stream] = {}
    for rank, name, text, stamp in pieces(data, block_bytes):
        stream = streams.get((rank, name))
        if stream is None:
            stream = streams[rank, name] = _Stream(rank, name, wanted)
        yield from stream.feed(text, stamp)
    for stream in streams.values():
        yield from stream.feed(b"\n", b"")


class _Stream:
    """One rank's output, whose lines come in pieces."""

    def __init__(
        self, rank: int | None, name: str, wanted: Callable[[bytes], object] = bool
    ) -> None:
        self._rank = rank
        self._name = name
        self._wanted = wanted
        self._is_first = True
        # Of the line that has not ended: what may hold its stamp, and what is shown of it so far.
        self._beginning = b""
        self._unfinished: list[bytes] = []
        self._length = 0

    def feed(self, text: bytes, stamp: bytes) -> list[Line]:
        """Take a piece that came at one time; the lines that end in it."""
        *ended, rest = text.split(b"\n")
        first = [self._line(piece, stamp) for piece in ended[:1]]
        as_shown = b"\r" not in text and b"\b" not in text
        shown = ended[1:] if as_shown else [_shown(piece) for piece in ended[1:]]
        lines = first + [
            Line(self._rank, self._name, line[:_LONGEST_LINE], stamp or piece[:LONGEST_PREFIX])
            for line, piece in zip(shown, ended[1:], strict=True)
            if self._wanted(line) or self._is_first
        ]
        if rest:
            self._beginning = self._beginning or rest[:LONGEST_PREFIX]
            self._unfinished.append(rest)
            self._length += len(rest)
            if self._length > _LONGEST_LINE:
                self._shorten()
        shown_ones = [line for line in lines if line.text]
        found = [line for line in shown_ones if self._wanted(line.text)]
        if self._is_first and shown_ones:
            self._is_first = False
            return found if shown_ones[0] in found[:1] else [shown_ones[0], *found]
        return found

    def _line(self, piece: bytes, stamp: bytes) -> Line:
        beginning = self._beginning or piece[:LONGEST_PREFIX]
        shown = _shown(b"".join([*self._unfinished, piece]) if self._unfinished else piece)
        self._beginning, self._unfinished, self._length = b"", [], 0
        return Line(self._rank, self._name, shown, stamp or beginning)

    def _shorten(self) -> None:
        whole = b"".join(self._unfinished)
        # A carriage return at the end may belong to the end of the line.
        kept = _shown(whole) + (b"\r" if whole.endswith(b"\r") else b"")
        self._unfinished, self._length = [kept], 0


def _shown(line: bytes) -> bytes:
    """What follows the last carriage return, or the backspaces of a bar that has lost its own."""
    text = line.rstrip(b"\r").rpartition(b"\r")[2]
    return text.rpartition(b"\b")[2][:_LONGEST_LINE]
