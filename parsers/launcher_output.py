"""The lines of ranks in what launchers and loggers print, and when they came.

Of a line counts what a terminal shows of it in the end: a progress bar is one line of megabytes, and all
of it but what follows the last carriage return was written over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .launchers import BLOCK_BYTES, LONGEST_PREFIX, Whose, pieces
from .signs import Sign
from .stamps import Stamp, read_stamp

#: What is longer is no line that people read.
LONGEST_LINE = 64 << 10


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


class Text(NamedTuple):
    """Whole lines that one rank has printed one after the other, as a terminal shows them in the end."""

    #: None where no launcher says whose they are.
    rank: int | None
    #: Every line with its end.
    text: bytes
    #: What may hold the stamp of when they came; empty where every line's own beginning may.
    before: bytes


@dataclass(frozen=True)
class Wanted:
    """The lines that somebody wants: in large files, most of the time goes into making all of them."""

    #: Every such line has one of these in it, or at its end; ``\d`` before or behind one is any digit.
    signs: tuple[bytes, ...]
    #: Whether a line that has one is wanted.
    chooses: Callable[[bytes], object] = bool
    #: Lines with one of these are wanted, too, and of those that follow each other the last one is
    #: enough.
    passing: tuple[bytes, ...] = ()
    #: Unless they have one of these, too.
    staying: tuple[bytes, ...] = ()

    @cached_property
    def sought(self) -> Sequence[Sign]:
        return [Sign(sign) for sign in self.signs]

    @cached_property
    def passes(self) -> Sequence[Sign]:
        return [Sign(sign) for sign in self.passing]

    @cached_property
    def stays(self) -> Sequence[Sign]:
        return [Sign(sign) for sign in self.staying]

    def among(self, lines: bytes) -> list[tuple[int, int]]:
        """Where lines that may be wanted begin and end, in order."""
        found: dict[tuple[int, int], bool] = {}
        for sign in self.sought:
            at = sign.find(lines, 0, len(lines))
            while at >= 0:
                # The sign may take the end of the line in.
                start, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
                if (start, end) not in found:
                    found[start, end] = not self._passes(lines, start, end)
                at = sign.find(lines, end, len(lines))
        places = sorted(place for place, stays in found.items() if stays)
        return sorted({*places, *self._last_passing(lines, places)}) if self.passing else places

    def _passes(self, lines: bytes, start: int, end: int) -> bool:
        """Whether a line has the sign of those that pass, and nothing of it was written over."""
        over = lines.find(b"\r", start, end)
        if over >= 0 and lines[over:end].strip(b"\r"):
            return False
        return _has(self.passes, lines, start, end) and not _has(self.stays, lines, start, end)

    def _last_passing(
        self, lines: bytes, places: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        first = 0
        for start, _ in [*places, (len(lines), len(lines))]:
            at = max(sign.rfind(lines, first, start) for sign in self.passes)
            if at >= 0:
                yield lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
            first = start


def _has(signs: Sequence[Sign], text: bytes, start: int, end: int) -> bool:
    return any(sign.find(text, start, end) >= 0 for sign in signs)


def shown_lines(
    data: bytes, block_bytes: int = BLOCK_BYTES, *, wanted: Wanted | None = None
) -> Iterator[Line]:
    """The lines of all ranks, those of each stream in their order, a last one without an end as well.

    Args:
        wanted: only these lines, and the first one of each stream.

    Beyond the data this needs the memory of a block and of one line per rank.
    """
    streams: dict[tuple[int | None, str], _Stream] = {}

    def at_rest() -> Collection[Whose]:
        return streams.keys() if all(stream.at_rest for stream in streams.values()) else ()

    for rank, name, text, stamp, thinned in pieces(data, block_bytes, wanted, at_rest):
        stream = streams.get((rank, name))
        if stream is None:
            stream = streams[rank, name] = _Stream(rank, name, wanted)
        yield from stream.feed(text, stamp, thinned=thinned)
    for stream in streams.values():
        yield from stream.feed(b"\n", b"")


def shown_texts(data: bytes, block_bytes: int = BLOCK_BYTES) -> Iterator[Text]:
    """The lines that ``shown_lines`` gives, and empty ones, many at once: for who looks at bytes."""
    streams: dict[tuple[int | None, str], _Stream] = {}
    for rank, name, text, stamp, _ in pieces(data, block_bytes):
        stream = streams.get((rank, name))
        if stream is None:
            stream = streams[rank, name] = _Stream(rank, name)
        yield from stream.texts(text, stamp)
    for stream in streams.values():
        yield from stream.texts(b"\n", b"")


class _Stream:
    """One rank's output, whose lines come in pieces."""

    def __init__(self, rank: int | None, name: str, wanted: Wanted | None = None) -> None:
        self._rank = rank
        self._name = name
        self._wanted = wanted
        self._is_first = True
        # Of the line that has not ended: what may hold its stamp, and what is shown of it so far.
        self._beginning = b""
        self._unfinished: list[bytes] = []
        self._length = 0

    @property
    def at_rest(self) -> bool:
        """Whether it has had its first line, and has ended its last one."""
        return not self._is_first and not self._unfinished

    def feed(self, text: bytes, stamp: bytes, *, thinned: bool = False) -> list[Line]:
        """Take a piece that came at one time; the lines that end in it."""
        own, whole = self._ended(text, stamp)
        lines = [own] if own is not None and own.text else []
        lines += self._lines(whole, stamp, thinned) if whole else []
        if self._wanted is None or not lines:
            return lines
        chosen = [line for line in lines if self._wanted.chooses(line.text)]
        if self._is_first:
            self._is_first = False
            return chosen if chosen[:1] == lines[:1] else [lines[0], *chosen]
        return chosen

    def texts(self, text: bytes, stamp: bytes) -> Iterator[Text]:
        """Take a piece that came at one time; what ends in it."""
        own, whole = self._ended(text, stamp)
        if own is not None:
            yield Text(self._rank, own.text + b"\n", own.before)
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n")
        if b"\r" not in whole and b"\b" not in whole:
            yield Text(self._rank, whole, stamp)
        else:
            for line in whole.split(b"\n"):
                yield Text(self._rank, _shown(line) + b"\n", stamp or line[:LONGEST_PREFIX])

    def _ended(self, text: bytes, stamp: bytes) -> tuple[Line | None, bytes]:
        """The line that was not finished and ends in a piece, and the whole lines that follow it."""
        first = text.find(b"\n")
        rest = text[text.rfind(b"\n") + 1 :]
        own = None if first < 0 else self._line(text[:first], stamp)
        if rest:
            self._beginning = self._beginning or rest[:LONGEST_PREFIX]
            self._unfinished.append(rest)
            self._length += len(rest)
            if self._length > LONGEST_LINE:
                self._shorten()
        return own, text[first + 1 : len(text) - len(rest)] if first >= 0 else b""

    def _lines(self, text: bytes, stamp: bytes, thinned: bool) -> list[Line]:
        """Whole lines that show something; once there was a first one, those that may be wanted."""
        if self._wanted is None or self._is_first or thinned:
            pieces = text.split(b"\n")
        else:
            pieces = [text[start:end] for start, end in self._wanted.among(text)]
        plain = b"\r" not in text and b"\b" not in text
        return [
            Line(self._rank, self._name, shown[:LONGEST_LINE], stamp or piece[:LONGEST_PREFIX])
            for piece in pieces
            if (shown := piece if plain else _shown(piece))
        ]

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
    return text.rpartition(b"\b")[2][:LONGEST_LINE]
