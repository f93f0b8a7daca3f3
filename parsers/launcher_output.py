"""The lines of ranks in what launchers and loggers print, and when they came.

Of a line counts what a terminal shows of it in the end: a progress bar is one line of megabytes, and all
of it but what follows the last carriage return was written over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .launchers import BLOCK_BYTES, LONGEST_PREFIX, Whole, Whose, pieces, pieces_or_lines
from .needles import Block, Sign
from .stamps import Stamp, read_stamp

#: What is longer is no line that people read.
LONGEST_LINE = 64 << 10
# Of blocks where a line is torn, every line is made: of smaller ones these are fewer.
_BLOCK_BYTES = 1 << 20


class Line(NamedTuple):
    """What a terminal shows of a line in the end, without what a launcher put before it.

    A prefix of a logger's is still there.
    """

    #: None if no launcher labels it.
    rank: int | None
    stream: str
    text: bytes
    #: What may hold the timestamp of when it came.
    before: bytes

    @property
    def stamp(self) -> Stamp | None:
        """When it came; None if unknown."""
        return read_stamp(self.before)


class _Text(NamedTuple):
    """Whole lines that one rank has printed one after the other, as a terminal shows them in the end."""

    #: None if no launcher labels them.
    rank: int | None
    #: Every line with its end.
    text: bytes
    #: What may hold the timestamp of when they came; empty where every line's own beginning may.
    before: bytes


@dataclass(frozen=True)
class Wanted:
    """The relevant lines: in large files, most of the time goes into making all of them."""

    #: Every such line has one of these in it, or at its end; ``\d`` before or after one is any digit.
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


def shown_blocks(data: bytes, block_bytes: int = _BLOCK_BYTES) -> Iterator[Whole]:
    """The lines that ``shown_lines`` gives, and empty ones, many at once: for who looks at bytes.

    A block's entries are of its first lines; what follows these in it are timestamps.
    """
    streams: dict[Whose, _Stream] = {}
    texts: list[_Text] = []
    size = 0

    def at_rest() -> bool:
        return not any(stream.goes_on for stream in streams.values())

    for found in pieces_or_lines(data, at_rest, block_bytes):
        if texts and (isinstance(found, Whole) or size >= block_bytes):
            yield _together(texts)
            texts, size = [], 0
        if isinstance(found, Whole):
            yield _as_shown(found)
            continue
        rank, name, text, stamp, _ = found
        stream = streams.get((rank, name))
        if stream is None:
            stream = streams[rank, name] = _Stream(rank, name)
        texts += stream.texts(text, stamp)
        size += len(text)
    texts += [text for stream in streams.values() for text in stream.texts(b"\n", b"")]
    if texts:
        yield _together(texts)


def _together(texts: Sequence[_Text]) -> Whole:
    """The lines of several texts in one block: looking at one costs as much as at a thousand lines."""
    stamps: dict[bytes, int] = {}
    size = sum(len(one.text) for one in texts)
    for one in texts:
        if one.before and one.before not in stamps:
            stamps[one.before] = size
            size += len(one.before) + 1
    block = Block(b"".join([*(one.text for one in texts), *(stamp + b"\n" for stamp in stamps)]))
    ends = block.ends[: sum(one.text.count(b"\n") for one in texts)]
    start, end = np.append(0, ends[:-1])[: len(ends)], ends - 1
    of_text = np.cumsum([0, *(len(one.text) for one in texts)])
    text = np.searchsorted(of_text, start, "right") - 1
    rank = np.array([-1 if one.rank is None else one.rank for one in texts])[text]
    stamp_at = np.array([stamps.get(one.before, -1) for one in texts])[text]
    length = np.array([len(one.before) for one in texts])[text]
    own = stamp_at < 0
    return Whole(
        block,
        rank,
        start,
        end,
        np.where(own, start, stamp_at),
        np.where(own, end, stamp_at + length),
    )


def _as_shown(lines: Whole) -> Whole:
    """The same lines, less what was written over in them."""
    block, start, end = lines.block, lines.start, lines.end
    returns, backs = block.having(ord("\r")), block.having(ord("\b"))
    if len(returns):
        end = end - ((end > start) & (block.bytes[end - 1] == ord("\r")))
        for at in np.flatnonzero((end > start) & (block.bytes[end - 1] == ord("\r"))).tolist():
            text = block.bytes[start[at] : end[at]].tobytes()
            end[at] = start[at] + len(text.rstrip(b"\r"))
    for over in (returns, backs):
        if len(over):
            line = block.lines_of(over)
            over, line = over[over < end[line]], line[over < end[line]]
            last = np.full(len(start), -1)
            last[line] = over
            start = np.maximum(start, last + 1)
    return replace(lines, start=start, end=end)


class _Stream:
    """One rank's output, whose lines come in pieces."""

    def __init__(self, rank: int | None, name: str, wanted: Wanted | None = None) -> None:
        self._rank = rank
        self._name = name
        self._wanted = wanted
        self._is_first = True
        # Of the line that has not ended: what may hold its timestamp, and what is shown of it so far.
        self._beginning = b""
        self._unfinished: list[bytes] = []
        self._length = 0

    @property
    def goes_on(self) -> bool:
        """Whether its last line has not ended."""
        return bool(self._unfinished)

    @property
    def at_rest(self) -> bool:
        """Whether it has had its first line, and has ended its last one."""
        return not self._is_first and not self.goes_on

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

    def texts(self, text: bytes, stamp: bytes) -> Iterator[_Text]:
        """Take a piece that came at one time; what ends in it."""
        own, whole = self._ended(text, stamp)
        if own is not None:
            yield _Text(self._rank, own.text + b"\n", own.before)
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n")
        if b"\r" not in whole and b"\b" not in whole:
            yield _Text(self._rank, whole, stamp)
        else:
            for line in whole.split(b"\n"):
                yield _Text(self._rank, _shown(line) + b"\n", stamp or line[:LONGEST_PREFIX])

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
