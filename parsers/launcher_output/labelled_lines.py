"""Join the fragments of output to lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Bools, Ints

from ..lines.line_blocks import LineBlock
from ..lines.timestamps import Timestamp, read_timestamp
from .filtering import LONGEST_LINE, LineFilter, Lines
from .labels import LONGEST_PREFIX, Stream, labels_of
from .splitting import BLOCK_BYTES, CutLines, Fragments, Splitter, blocks_of, has_cut_lines

_ONE_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class Line(NamedTuple):
    """A line as a terminal shows it in the end, without the launcher's label.

    A logger's prefix without a label is still there.
    """

    #: None if no launcher labels it.
    rank: int | None
    stream: str
    text: bytes
    #: The text that may contain its timestamp.
    before: bytes

    @property
    def timestamp(self) -> Timestamp | None:
        """When it was printed, None if unknown."""
        return read_timestamp(self.before)


def rank_lines(
    data: bytes, block_bytes: int = BLOCK_BYTES, *, only: LineFilter | None = None
) -> Iterator[Line]:
    """Yield the lines of all ranks, each stream's in order, without empty ones.

    Args:
        data: the output.
        block_bytes: how much to process at a time.
        only: yield only these lines, and the first one of each stream.
    """
    started: set[int] = set()
    reader = _Reader(data, block_bytes)
    for block, fragments, whole, joined in reader.blocks():
        if only is not None and whole.any():
            has_started = np.zeros(len(reader.streams), bool)
            has_started[[*started]] = True
            whole = whole & only.candidates(
                block, fragments, ~whole | ~has_started[fragments.stream]
            )
        streams = [*reader.streams]
        for line in _in_order(_whole_lines(block, fragments, whole), joined):
            if line.text:
                is_first = line.stream not in started
                started.add(line.stream)
                if only is None or is_first or only.accepts(line.text):
                    yield Line(*streams[line.stream], line.text, line.before)


def line_blocks(data: bytes, block_bytes: int = BLOCK_BYTES) -> Iterator[Lines]:
    """Yield all lines of all ranks as columns, each rank's in order.

    Blocks may contain timestamps after their lines.
    """
    reader = _Reader(data, block_bytes)
    for block, fragments, whole, joined in reader.blocks():
        ranks = np.array([-1 if rank is None else rank for rank, _ in reader.streams])
        if whole.all() and len(whole) == len(block.ends) and not joined:
            timed = fragments.time_end > fragments.time_start
            start, end = fragments.start, fragments.end - 1
            time_start = np.where(timed, fragments.time_start, start)
            time_end = np.where(timed, fragments.time_end, end)
            yield _as_shown(Lines(block, ranks[fragments.stream], start, end, time_start, time_end))
        else:
            rows = [*_in_order(_whole_lines(block, fragments, whole), joined)]
            if rows:
                yield _in_one_block(rows, ranks)


def output_by_rank(data: bytes, block_bytes: int = BLOCK_BYTES) -> dict[Stream, bytes]:
    """Return all output of each rank in each stream, byte for byte.

    The launcher's own lines have the rank None. The last entry is the stream in which the data ends.
    """
    reader = _Reader(data, block_bytes)
    texts: dict[int, list[bytes]] = {}
    for stream, text in reader.texts():
        texts.setdefault(stream, []).append(text)
    texts[reader.last] = texts.pop(reader.last, [])
    streams = [*reader.streams]
    return {streams[stream]: b"".join(pieces) for stream, pieces in texts.items()}


# The number of a fragment, its stream, its text, and the text of its timestamp.
_Piece = tuple[int, int, bytes, bytes]


class _JoinedLine(NamedTuple):
    """A line of one or more fragments."""

    #: The number of its last fragment.
    at: int
    stream: int
    text: bytes
    before: bytes


@dataclass
class _Unfinished:
    """The start of a line whose end was not read yet."""

    before: bytes
    parts: list[bytes] = field(default_factory=list)
    length: int = 0

    def add(self, text: bytes) -> None:
        self.parts.append(text)
        self.length += len(text)
        if self.length > LONGEST_LINE:
            whole = b"".join(self.parts)
            # A carriage return at the end may belong to the end of the line.
            kept = _shown(whole) + (b"\r" if whole.endswith(b"\r") else b"")
            self.parts, self.length = [kept], 0


class _Reader:
    """Reads the fragments of a file, block by block, and joins those of one line."""

    def __init__(self, data: bytes, block_bytes: int) -> None:
        labels = labels_of(data)
        self._splitter = Splitter(labels)
        self._blocks = blocks_of(data, labels, block_bytes)
        self._may_be_cut = labels is not None and labels.cut_lines
        self._cut_lines = CutLines()
        self._unfinished: dict[int, _Unfinished] = {}
        #: The stream of the last fragment so far.
        self.last = 0

    @property
    def streams(self) -> Collection[Stream]:
        """The streams so far, in the order of their numbers."""
        return self._splitter.streams

    def blocks(self) -> Iterator[tuple[LineBlock, Fragments, Bools, list[_JoinedLine]]]:
        """Yield blocks with their fragments, which of these are whole lines, and the other lines."""
        for block, fragments in self._split():
            if self._is_cut(block):
                whole = np.zeros(len(fragments.end), bool)
                pieces: Iterable[_Piece] = (
                    (0, stream, text, b"") for stream, text in self._without_cuts(block, fragments)
                )
            else:
                whole, order = self._whole(fragments)
                pieces = _pieces(
                    block, fragments, _not_overwritten(block, fragments, order[~whole[order]])
                )
            yield block, fragments, whole, [*self._joined(pieces)]
        rest = [(0, stream, text, b"") for stream, text in self._rest()]
        rest += [(0, stream, b"\n", b"") for stream in self._unfinished]
        fragments = self._splitter.split(LineBlock(b""))
        yield LineBlock(b""), fragments, fragments.complete, [*self._joined(rest)]

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of output with their streams, in order for each stream."""
        for block, fragments in self._split():
            if self._is_cut(block):
                yield from self._without_cuts(block, fragments)
            else:
                yield from _by_stream(block, fragments)
        yield from self._rest()

    def _split(self) -> Iterator[tuple[LineBlock, Fragments]]:
        for block in self._blocks:
            fragments = self._splitter.split(block)
            if len(fragments.stream):
                self.last = int(fragments.stream[-1])
            yield block, fragments

    def _is_cut(self, block: LineBlock) -> bool:
        return self._may_be_cut and (self._cut_lines.waits or has_cut_lines(block.text))

    def _without_cuts(self, block: LineBlock, fragments: Fragments) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a block, with those joined that srun has cut."""
        order = np.argsort(fragments.stream, kind="stable")
        streams: dict[int, list[bytes]] = {}
        for _, stream, text, _ in _pieces(block, fragments, order):
            streams.setdefault(stream, []).append(text)
        for stream, lines in streams.items():
            joined = self._cut_lines.joined(stream, lines) if stream else lines
            yield from ((stream, text) for text in joined if text)

    def _rest(self) -> Iterator[tuple[int, bytes]]:
        for stream, text in self._cut_lines.rest():
            yield from ((stream, line) for line in _ONE_LINE.findall(text))

    def _whole(self, fragments: Fragments) -> tuple[Bools, Ints]:
        """Return which fragments are whole lines, and the order of all fragments by stream."""
        if not self._unfinished and fragments.complete.all():
            return fragments.complete, np.zeros(0, np.int64)
        order = np.argsort(fragments.stream, kind="stable")
        stream, complete = fragments.stream[order], fragments.complete[order]
        is_first = np.append(True, stream[1:] != stream[:-1])[: len(order)]
        continues = np.append(False, ~complete[:-1])[: len(order)]
        continues[is_first] = np.isin(stream[is_first], [*self._unfinished])
        whole = np.zeros(len(order), bool)
        whole[order] = complete & ~continues
        return whole, order

    def _joined(self, pieces: Iterable[_Piece]) -> Iterator[_JoinedLine]:
        """Join pieces to lines; a line without an end waits for the next block.

        Args:
            pieces: the pieces of a block.
        """
        for at, stream, text, timestamp in pieces:
            unfinished = self._unfinished.get(stream)
            if unfinished is None:
                unfinished = self._unfinished[stream] = _Unfinished(
                    text.rstrip(b"\n")[:LONGEST_PREFIX]
                )
            if text.endswith(b"\n"):
                del self._unfinished[stream]
                line = b"".join([*unfinished.parts, text[:-1]])
                yield _JoinedLine(at, stream, _shown(line), timestamp or unfinished.before)
            else:
                unfinished.add(text)


def _pieces(block: LineBlock, fragments: Fragments, order: Ints) -> Iterator[_Piece]:
    """Yield fragments with their numbers, streams, texts and timestamps."""
    text = block.text
    columns = (
        fragments.stream,
        fragments.start,
        fragments.end,
        fragments.time_start,
        fragments.time_end,
    )
    for at, stream, start, end, first, last in zip(
        order.tolist(), *(column[order].tolist() for column in columns), strict=True
    ):
        yield at, stream, text[start:end], text[first:last]


def _not_overwritten(block: LineBlock, fragments: Fragments, order: Ints) -> Ints:
    """Drop pieces of bars that the next piece of their line overwrites.

    Args:
        block: the block.
        fragments: its fragments.
        order: the fragments to check, by stream.
    """
    if len(order) < 3:
        return order
    stream, complete, start = (
        fragments.stream[order],
        fragments.complete[order],
        fragments.start[order],
    )
    first, second = block.bytes[start], block.bytes[start + 1]
    # Carriage returns at the end of a line overwrite nothing.
    returns = (first == ord("\r")) & (second != ord("\r")) & (second != ord("\n"))
    goes_back = (first == ord("\b")) | (returns & (fragments.end[order] - start > 1))
    goes_on = np.append(False, (stream[1:] == stream[:-1]) & ~complete[:-1])
    # The first piece may contain the line's timestamp.
    over = np.append(goes_on[1:] & goes_back[1:], False) & goes_on
    return np.asarray(order[~over])


def _by_stream(block: LineBlock, fragments: Fragments) -> Iterator[tuple[int, bytes]]:
    """Yield the streams of a block with their output in it."""
    if not fragments.stream.any() and (fragments.end - fragments.start).sum() == block.size:
        yield 0, block.text
        return
    order = np.argsort(fragments.stream, kind="stable")
    firsts = np.flatnonzero(np.diff(fragments.stream[order], prepend=-1))
    for first, indices in zip(firsts.tolist(), np.split(order, firsts)[1:], strict=True):
        stream = int(fragments.stream[order[first]])
        places = zip(
            fragments.start[indices].tolist(), fragments.end[indices].tolist(), strict=True
        )
        yield stream, b"".join([block.text[start:end] for start, end in places])


def _whole_lines(block: LineBlock, fragments: Fragments, chosen: Bools) -> Iterator[_JoinedLine]:
    """Make lines of fragments that are whole lines."""
    for at, stream, text, timestamp in _pieces(block, fragments, np.flatnonzero(chosen)):
        line = text[:-1]
        yield _JoinedLine(at, stream, _shown(line), timestamp or line[:LONGEST_PREFIX])


def _in_order(whole: Iterable[_JoinedLine], joined: Sequence[_JoinedLine]) -> Iterable[_JoinedLine]:
    # Callers may need the first lines only.
    return sorted([*whole, *joined], key=lambda line: line.at) if joined else whole


def _shown(line: bytes) -> bytes:
    """Return the text after the last carriage return, or after a bar's backspaces."""
    if b"\r" in line or b"\b" in line:
        line = line.rstrip(b"\r").rpartition(b"\r")[2].rpartition(b"\b")[2]
    return line[:LONGEST_LINE]


def _as_shown(lines: Lines) -> Lines:
    """Drop the overwritten parts of lines."""
    block, start, end = lines.block, lines.start, lines.end
    if not len(start):
        return lines
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


def _in_one_block(rows: Sequence[_JoinedLine], ranks: Ints) -> Lines:
    """Copy lines into a block, followed by the timestamps that are not at the start of their text."""
    stamps: dict[bytes, int] = {}
    size = sum(len(row.text) + 1 for row in rows)
    for row in rows:
        if row.before != row.text[:LONGEST_PREFIX] and row.before not in stamps:
            stamps[row.before] = size
            size += len(row.before) + 1
    block = LineBlock(b"".join(text + b"\n" for text in (*(row.text for row in rows), *stamps)))
    length = np.array([len(row.text) for row in rows])
    end = np.cumsum(length + 1) - 1
    start = end - length
    time_start = np.array([stamps.get(row.before, -1) for row in rows])
    time_end = time_start + np.array([len(row.before) for row in rows])
    at_start = time_start < 0
    return Lines(
        block,
        ranks[[row.stream for row in rows]],
        start,
        end,
        np.where(at_start, start, time_start),
        np.where(at_start, end, time_end),
    )
