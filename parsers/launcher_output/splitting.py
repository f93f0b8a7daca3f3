"""Split blocks of output at labels and newlines, many places at once, those of srun included."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from stallscope.arrays.types import Bools, Ints

from ..lines.line_blocks import LineBlock, Needle, Words
from .labels import LONGEST_LABEL, LONGEST_PREFIX, UNLABELLED, Labels, Stream

#: Smaller blocks cost more calls, larger ones leave the CPU's caches.
BLOCK_BYTES = 1 << 20
# In the first block all lines become objects, as labels are not known yet.
_FIRST_BLOCK_BYTES = 64 << 10
# No launcher starts more ranks; a damaged file may name any number of them.
_MOST_STREAMS = 1 << 14
_WORD = 8
# Fractions of seconds after ``2026-11-21 02:28:01``: the rest of a prefix repeats.
_POINT, _FRACTION = 19, (20, 21, 22)

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


def blocks_of(data: bytes, labels: Labels | None, block_bytes: int) -> Iterator[LineBlock]:
    """Cut data after a newline, or else before a possible label."""
    if labels is not None and labels.cut_lines:
        # No line that srun has cut is in two blocks.
        block_bytes = max(block_bytes, LONGEST_CUT_LINE)
    at = 0
    while at < len(data):
        most = block_bytes if at else min(block_bytes, _FIRST_BLOCK_BYTES)
        until = at + most
        if until < len(data):
            until = (data.rfind(b"\n", at, until) + 1) or data.rfind(b"[", at + 1, until)
            until = until if until > at else at + most
        yield LineBlock(data[at:until])
        at = until


@dataclass(frozen=True)
class Fragments:
    """The output of ranks in a block, in pieces without a newline before their end."""

    #: The number of the stream.
    stream: Ints
    start: Ints
    end: Ints
    #: Where the timestamp before the label is; equal numbers if there is none.
    time_start: Ints
    time_end: Ints
    #: Whether a newline ends it.
    complete: Bools


class Splitter:
    """Splits the blocks of one file, in order.

    Args:
        labels: the file's labels.
    """

    def __init__(self, labels: Labels | None) -> None:
        self._labels = labels
        #: All streams so far, with their numbers.
        self.streams: dict[Stream, int] = {UNLABELLED: 0}
        # The numbers of streams by their labels.
        self._known: dict[bytes, int] = {}
        # The stream that continues in the next block, and whether that block starts with a line.
        self._stream = 0
        self._starts_line = True

    def split(self, block: LineBlock) -> Fragments:
        """Split the next block."""
        if self._labels is None:
            return _unlabelled(block)
        at, text_at, stream = self._find_labels(block)
        start, stream = np.append(0, text_at), np.append(self._stream, stream)
        prefix = self._prefix_lengths(block, start[:-1], at)
        if _each_starts_a_line(block, at - prefix):
            self._stream, self._starts_line = int(stream[-1]) if self._labels_reach_on else 0, True
            whole = np.ones(len(at), bool)
            return Fragments(stream[1:], text_at, block.ends, at - prefix, at, whole)
        piece_end = np.append(at - prefix, block.size)
        # Two sorted runs, which a stable sort merges in one pass.
        end = np.sort(np.append(piece_end[piece_end > start], block.ends), kind="stable")
        end = end[np.append(True, end[1:] != end[:-1])[: len(end)]]
        piece = np.searchsorted(start, end) - 1
        first_of_piece = np.append(True, piece[1:] != piece[:-1])[: len(end)]
        # After a newline the launcher's own text follows; a logger's lines belong to the last label.
        labelled = first_of_piece | self._labels_reach_on
        time_start, time_end = np.append(0, at - prefix)[piece], np.append(0, at)[piece]
        complete = block.bytes[end - 1] == ord("\n")
        fragments = Fragments(
            np.where(labelled, stream[piece], 0),
            np.maximum(start[piece], np.append(0, end[:-1])[: len(end)]),
            end,
            np.where(labelled, time_start, 0),
            np.where(labelled, time_end, 0),
            complete,
        )
        self._starts_line = block.text.endswith(b"\n")
        if self._labels_reach_on or piece_end[-1] == start[-1]:
            self._stream = int(stream[-1])
        else:
            self._stream = 0 if self._starts_line else int(fragments.stream[-1])
        return fragments

    @property
    def _labels_reach_on(self) -> bool:
        assert self._labels is not None
        return self._labels.logged

    def _find_labels(self, block: LineBlock) -> tuple[Ints, Ints, Ints]:
        """Return where labels start, where their texts start, and the numbers of their streams."""
        labels = self._labels
        assert labels is not None
        if labels.start_lines:
            at = np.append(0, block.ends)[0 if self._starts_line else 1 :]
            length, stream = self._known_labels(block, at)
        else:
            # Programs also print numbers in brackets, often several in each line.
            at, closed = _bracketed(block.having(ord("[")), block.places(Needle(labels.closing)))
            may_follow = np.zeros(256, bool)
            may_follow[list(labels.second_bytes)] = True
            possible = may_follow[block.bytes[at + 1]]
            for word in labels.not_after:
                possible &= ~block.has(np.maximum(at - len(word), 0), word)
            if not possible.all():
                at, closed = at[possible], closed[possible]
            length, stream = self._bracketed_labels(block, at, closed - at + labels.closing_length)
        for place in np.flatnonzero(length == 0).tolist():
            match = labels.tag.match(block.text, int(at[place]))
            if match is not None:
                length[place], stream[place] = len(match[0]), self._number_of(labels, match[0])
        is_label = length > 0
        if not is_label.all():
            at, length, stream = at[is_label], length[is_label], stream[is_label]
        text_at = at + length
        if labels.spaced:
            text_at = text_at + (block.bytes[text_at] == ord(" "))
        return at, text_at, stream

    def _known_labels(self, block: LineBlock, at: Ints) -> tuple[Ints, Ints]:
        """Return the lengths of known labels at these places, and the numbers of their streams.

        The length is 0 if there is none.
        """
        length, stream = np.zeros((2, len(at)), np.int64)
        rest = np.arange(len(at))
        for label_length in {len(label) for label in self._known}:
            index, texts = block.distinct(at[rest], np.full(len(rest), label_length))
            numbers = np.array([self._known.get(text, -1) for text in texts], np.int64)[index]
            here = numbers >= 0
            length[rest[here]], stream[rest[here]] = label_length, numbers[here]
            rest = rest[~here]
        return length, stream

    def _bracketed_labels(self, block: LineBlock, at: Ints, length: Ints) -> tuple[Ints, Ints]:
        """Return the lengths of labels at these places, and the numbers of their streams.

        The length is 0 if there is no label of the given length.
        """
        labels = self._labels
        assert labels is not None
        possible = length <= LONGEST_LABEL
        index, texts = block.distinct(at, np.where(possible, length, 1))
        numbers = [
            self._number_of(labels, text) if labels.tag.fullmatch(text) else -1 for text in texts
        ]
        stream = np.array(numbers, np.int64)[index]
        return np.where(stream >= 0, length, 0), stream

    def _number_of(self, labels: Labels, label: bytes) -> int:
        if label not in self._known:
            if len(self._known) >= _MOST_STREAMS:
                return 0
            stream = labels.stream_of(label)
            self._known[label] = self.streams.setdefault(stream, len(self.streams))
        return self._known[label]

    def _prefix_lengths(self, block: LineBlock, start: Ints, at: Ints) -> Ints:
        """Count the bytes of the timestamp or prefix before each label.

        Args:
            block: the block.
            start: where the text before each label starts.
            at: where the labels start.
        """
        length = np.zeros(len(at), np.int64)
        labels = self._labels
        assert labels is not None
        if not (labels.timed or labels.logged):
            return length
        line = np.append(0, block.ends)[np.searchsorted(block.ends, at, "right")]
        starts_line = (line >= start) & ((line > 0) | self._starts_line)
        before = np.minimum(at - np.maximum(line, start), LONGEST_PREFIX)
        some = np.flatnonzero(before)
        if len(some):
            # Other digits change the length of no time; of a logger's, some are of no time.
            alike = block if labels.logged else LineBlock(block.digits_alike)
            changed, which = _different(
                alike, at[some] - before[some], before[some], starts_line[some]
            )
            lengths = [
                labels.prefix_length(
                    block.text[at[place] - before[place] : at[place]],
                    starts_line=bool(starts_line[place]),
                )
                for place in some[changed].tolist()
            ]
            length[some] = np.array(lengths)[which]
        return length


def _unlabelled(block: LineBlock) -> Fragments:
    """Return the lines of a block without labels."""
    cut = len(block.ends) == 0 or block.ends[-1] < block.size
    end = np.append(block.ends, block.size) if cut and block.size else block.ends
    none, complete = np.zeros(len(end), np.int64), np.ones(len(end), bool)
    complete[len(block.ends) :] = False
    return Fragments(none, np.append(0, end[:-1])[: len(end)], end, none, none, complete)


def _each_starts_a_line(block: LineBlock, at: Ints) -> bool:
    """Whether the lines of a block start at these places, and the last one has its end."""
    ends = block.ends
    is_whole = len(at) == len(ends) > 0 and at[0] == 0 and ends[-1] == block.size
    return is_whole and bool((at[1:] == ends[:-1]).all())


def _bracketed(opened: Ints, closed: Ints) -> tuple[Ints, Ints]:
    """Pair each opening bracket with the first closing one before the next opening one."""
    if len(opened) == len(closed) and (opened < closed).all() and (closed[:-1] < opened[1:]).all():
        return opened, closed
    before = np.searchsorted(opened, closed)
    closed, before = closed[before > 0], before[before > 0]
    first = np.append(True, before[1:] != before[:-1])[: len(before)]
    return opened[before[first] - 1], closed[first]


def _different(block: LineBlock, start: Ints, length: Ints, kind: Bools) -> tuple[Ints, Ints]:
    """Find the places whose text differs from the one before by more than a fraction of a second.

    Returns:
        These places, and for each place the index of its text among them.
    """
    words = block.words_of(start, length)
    if len(words) > _POINT // _WORD:
        words[_POINT // _WORD] = _without_fraction(words[_POINT // _WORD])
    changed = np.append(True, (length[1:] != length[:-1]) | (kind[1:] != kind[:-1]))
    for column in words:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed), np.cumsum(changed) - 1


def _without_fraction(words: Words) -> Words:
    """Return the same word for all fractions of one length."""
    first = _POINT - _POINT % _WORD
    point = _byte(words, _POINT - first)
    plain = (point == ord(".")) | (point == ord(","))
    zeros = np.uint64(0)
    for at in _FRACTION:
        plain &= _byte(words, at - first) - np.uint64(ord("0")) < np.uint64(10)
        zeros |= np.uint64(0xFF << 8 * (at - first))
    return np.where(plain, words | zeros, words)


def _byte(words: Words, at: int) -> Words:
    return np.asarray((words >> np.uint64(8 * at)) & np.uint64(0xFF))


# -- Join lines that ``srun --label`` has cut -----------------------------------------------------
#
# srun sends the output of a task in messages of at most 1,024 bytes. If a message ends within a
# line, srun adds a newline, and the next message gets a label: every 1,024 bytes of a longer line
# become a line. Both streams of a task have the same label, so the other stream's output may be in
# between: most often records or warnings among the pieces of a bar.


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
