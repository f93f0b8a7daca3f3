"""Whose a line is: what launchers print of all ranks, taken apart by rank and stream.

    [1,0]<stdout>:text                                        Open MPI: job and rank
    Sat Nov 21 02:28:01 2026[1,0]<stdout>:text                and when, in Open MPI 4
    [Sat Nov 21 02:28:03 2026][1,0]<stdout>: text             and in 5, with a space
    [0]<stdout>:text, Sat Nov 21 02:29:50 2026[0]<stdout>:text    horovodrun over Gloo
    [0] text                                                  MPICH -l
    [default0]:text                                           torchrun: role and local rank
    0: text                                                   srun --label
    2026-11-21 02:28:01,123 - STDOUT - INFO - [1,0]<stdout>:text  a logger around one of them

Labels stand before whatever a launcher has read at once, so in the middle of lines, too, and between
two pieces of a rank's line there may be pieces of others'. So the text is cut at every label; what is
put together rank by rank is what the ranks have written, byte for byte. What stands between labelled
lines without a label is the launcher's own. Lines that srun has cut are put together again, see
``cut_lines``.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .cut_lines import LONGEST_CUT_LINE, CutLines, has_cut_lines
from .digits import Ints
from .labelled_lines import NO_LABELS, Form, owned
from .needles import Block
from .prefilter import Signs, Thinning
from .stamps import CTIME, read_stamp

#: Timestamps with names of loggers are far shorter.
LONGEST_PREFIX = 160
BLOCK_BYTES = 4 << 20
# Most ranks have printed something by then; before they have, no line may be left out.
_FIRST_BLOCK_BYTES = 256 << 10
# More ranks than any launcher has started; a damaged file may name any number of them.
_MOST_STREAMS = 1 << 14
# So many bytes at three places show which labels a file has.
_SAMPLE_BYTES = 16 << 10
_MOST_OF_THEM = 0.8

_TAG = re.compile(rb"\[(?:\d{1,9},)?(\d{1,6})\]<(stdout|stderr|stddiag)>:")
_TAG_LITERAL = b"]<std"
# Labels that do not say which stream it is.
_TORCHRUN = re.compile(rb"\[[A-Za-z][A-Za-z_.-]{0,40}(\d{1,6})\]:()")
_TORCHRUN_DEFAULT = re.compile(rb"^\[default\d{1,6}\]:", re.MULTILINE)
_MPICH = re.compile(rb"\[(\d{1,6})\] ()")
# A number and a colon are in many lines: only at their beginnings.
_SLURM = re.compile(rb"^(?:P\d+ )? *(\d{1,6}): ()", re.MULTILINE)
# Slurm's own messages have no label, for example about a cancelled job.
_SLURMS_OWN = (b"srun: ", b"slurmstepd")

_CAPTURES = re.compile(rb"(?<!\\)\((?:(?!\?)|\?P<\w+>)")

# How what stands before a tag may end: a time in words, or a logger's prefix.
_ENDS_OF_PREFIXES = tuple(b"%c" % byte for byte in b"0123456789]) -:>|\t")
_TIME_BYTES = len("Sat Nov 21 02:28:01 2026")
_STAMP_OF_TAG = re.compile(rb"\[?" + CTIME + rb"\]?\Z")


#: A rank and a stream; None and an empty name for what has no label.
Whose = tuple["int | None", str]
_NOBODY: Whose = (None, "")
# By stream, timestamps with the texts that have them.
_Groups = dict[Whose, list[tuple[bytes, list[bytes]]]]


class Piece(NamedTuple):
    """What one rank has written into one stream, up to the next label."""

    #: None for what has no label.
    rank: int | None
    #: Empty where labels do not say it.
    stream: str
    text: bytes
    #: What holds the launcher's or a logger's timestamp; empty where there is none.
    stamp: bytes
    #: Whether irrelevant lines were left out of it.
    thinned: bool = False


@dataclass(frozen=True)
class Whole:
    """Lines that were printed in one piece each, one entry for each line."""

    block: Block
    #: -1 for what has no label.
    rank: Ints
    #: Where in the block they begin, after their labels, and where they end.
    start: Ints
    end: Ints
    #: Where what may hold their timestamps is.
    stamp_at: Ints
    stamp_end: Ints


@dataclass(frozen=True)
class Labels:
    """The labels that a file has."""

    tag: re.Pattern[bytes]
    #: Which launcher's they are, in words.
    launcher: str
    #: Open MPI 5 puts a space between its label and the text.
    spaced: bool = False
    #: Times in words stand before them.
    stamped: bool = False
    #: A logger's prefix stands before them, and before lines that it has cut at carriage returns.
    logged: bool = False
    #: They are numbers within a host, and no ranks.
    local: bool = False

    @property
    def pattern(self) -> bytes:
        """How one looks, without groups."""
        return _uncaptured(self.tag.pattern)

    @property
    def begin_lines(self) -> bool:
        """Whether they are at the beginnings of lines only."""
        return self.tag is _SLURM


def labels_of(data: bytes) -> Labels | None:
    """The labels that a file has; None where it has none."""
    if _TAG_LITERAL in data:
        return _tags_of(data)
    sample = [
        line
        for line in _sampled(data).split(b"\n")
        if line.strip() and not line.startswith(_SLURMS_OWN)
    ]
    for form, launcher in ((_TORCHRUN, "torchrun"), (_MPICH, "MPICH"), (_SLURM, "srun")):
        ranks = [found[1] for found in map(form.match, sample) if found is not None]
        # A numbered list has every number once.
        if len(ranks) > _MOST_OF_THEM * len(sample) and len(set(ranks)) < len(ranks):
            return Labels(form, launcher, local=form is _TORCHRUN)
    if _TORCHRUN_DEFAULT.search(data[:_SAMPLE_BYTES]):
        return Labels(_TORCHRUN, "torchrun", local=True)
    return None


def pieces(
    data: bytes,
    block_bytes: int = BLOCK_BYTES,
    wanted: Signs | None = None,
    at_rest: Callable[[], Collection[Whose]] = tuple,
) -> Iterator[Piece]:
    """The pieces of all ranks, those of each stream in their order.

    Args:
        wanted: lines that have none of these signs may be left out.
        at_rest: the streams that have had their first lines, where all have ended their last ones.

    Beyond the data this needs the memory of a block. What one stream has in a block with one timestamp
    is one piece.
    """
    labels = labels_of(data)
    cutting = _cutting(labels)
    thinning = None if wanted is None else Thinning(_form(labels), wanted)
    for block in _blocks(data, labels, block_bytes):
        rested = at_rest() if thinning is not None and cutting.may_leave_out(block) else ()
        if thinning is not None and rested:
            known = [label for label, whose in cutting.streams.items() if whose in rested]
            left = thinning.thinned(block, known, nobodys=_NOBODY in rested)
            if len(left) < len(block):
                if left:
                    yield from (piece._replace(thinned=True) for piece in cutting.pieces_of(left))
                continue
        yield from cutting.pieces_of(block)
    yield from cutting.rest()


def pieces_or_lines(
    data: bytes, at_rest: Callable[[], bool], block_bytes: int = BLOCK_BYTES
) -> Iterator[Piece | Whole]:
    """The same; of blocks where no line is torn, all lines at once.

    Args:
        at_rest: whether no line goes on that the pieces so far have begun.
    """
    labels = labels_of(data)
    cutting = _cutting(labels)
    for block in _blocks(data, labels, block_bytes):
        lines = cutting.lines_of(block) if at_rest() and cutting.may_leave_out(block) else None
        if lines is None:
            yield from cutting.pieces_of(block)
        else:
            yield lines
    yield from cutting.rest()


def demultiplexed(data: bytes) -> dict[Whose, bytes]:
    """What every rank has written into every stream, byte for byte, by rank and stream.

    What the launcher itself has printed between lines of ranks has the rank None. The last one is the
    stream that the data ends in.
    """
    streams: dict[Whose, list[bytes]] = {}
    key = _NOBODY
    for rank, stream, text, *_ in pieces(data):
        key = (rank, stream)
        streams.setdefault(key, []).append(text)
    streams[key] = streams.pop(key, [])
    return {key: b"".join(texts) for key, texts in streams.items()}


class _Uncut:
    """Blocks without labels, as they are."""

    def __init__(self) -> None:
        self.streams: dict[bytes, Whose] = {}
        self._begins_line = True

    def may_leave_out(self, block: bytes) -> bool:
        return self._begins_line

    def pieces_of(self, block: bytes) -> Iterator[Piece]:
        self._begins_line = block.endswith(b"\n")
        yield Piece(*_NOBODY, block, b"")

    def lines_of(self, text: bytes) -> Whole | None:
        if not text.endswith(b"\n"):
            return None
        block = Block(text)
        start, end = np.append(0, block.ends[:-1]), block.ends - 1
        return Whole(block, np.full(len(start), -1), start, end, start, end)

    def rest(self) -> Iterator[Piece]:
        return iter(())


def _cutting(labels: Labels | None) -> _Uncut | _Cutting:
    return _Uncut() if labels is None else _Cutting(labels)


class _Cutting:
    """Cuts blocks at labels; a piece goes on until the next one, also in the next block."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._form = _form(labels)
        # One group around the whole label: fewer texts to make of millions of labels.
        self._whole = re.compile(b"(" + _uncaptured(labels.tag.pattern) + b")", labels.tag.flags)
        #: Whose each label is that was met so far.
        self.streams: dict[bytes, Whose] = {}
        # Whether the next block begins with a line.
        self._begins_line = True
        self._whose = _NOBODY
        self._cut_lines: CutLines[Whose] = CutLines()
        # Times in words that were found to be some: each stands before thousands of labels.
        self._times: set[bytes] = set()

    def may_leave_out(self, block: bytes) -> bool:
        """Whether lines of the next block may be left out: it begins with one, and none goes on."""
        if not self._begins_line or self._cut_lines.waits:
            return False
        return not (self._labels.begin_lines and has_cut_lines(block))

    def pieces_of(self, block: bytes) -> Iterator[Piece]:
        """The pieces of the next block."""
        if self._labels.begin_lines:
            found = self._of_lines(block)
        elif self._labels.logged or not self._begins_line:
            found = self._one_by_one(block)
        else:
            found = self._joined(block)
        yield from found
        self._begins_line = block.endswith(b"\n")
        if self._begins_line and not self._labels.logged:
            self._whose = _NOBODY

    def lines_of(self, text: bytes) -> Whole | None:
        """The lines of the next block; None where some are torn, or have labels that are new."""
        if not text.endswith(b"\n"):
            return None
        block = Block(text)
        lines = owned(block, text, self._form, [*self.streams])
        if lines is None or lines.torn.any() or (self._form.goes_on and not lines.labelled[0]):
            return None
        streams = [_NOBODY, *self.streams.values()]
        ranks = np.array([-1 if rank is None else rank for rank, _ in streams])
        begin, end = np.append(0, block.ends[:-1]), block.ends - 1
        start = lines.text_at
        if self._labels.spaced:
            start = start + (lines.labelled & (block.bytes[start] == ord(" ")))
        # A timestamp stands before its label, and counts for what goes on with its line, too.
        told = np.arange(len(begin))
        if self._form.goes_on:
            told = np.maximum.accumulate(np.where(lines.labelled, told, 0))
            self._whose = streams[lines.whose[-1]]
        stamped = (lines.label_at > begin)[told]
        return Whole(
            block,
            ranks[lines.whose],
            start,
            end,
            np.where(stamped, begin[told], start),
            np.where(stamped, lines.label_at[told], end),
        )

    def rest(self) -> Iterator[Piece]:
        """What has waited for a line to follow."""
        for (rank, stream), line in self._cut_lines.rest():
            yield Piece(rank, stream, line, b"")

    def _of_lines(self, block: bytes) -> Iterator[Piece]:
        """The pieces of a block whose labels are at the beginnings of lines only."""
        first = 0 if self._begins_line else block.find(b"\n") + 1 or len(block)
        if first:
            yield Piece(*self._whose, block[:first], b"")
        if first < len(block):
            yield from self._joined(block[first:] if first else block)

    def _joined(self, block: bytes) -> Iterator[Piece]:
        """Join what a stream has with one timestamp; there are millions of labels in large files."""
        parts = self._whole.split(block)
        first, *texts = parts[0::2]
        if self._labels.spaced:
            texts = [text[1:] if text[:1] == b" " else text for text in texts]
        stamps = [b""] * len(texts)
        if self._labels.stamped and texts:
            # The last text goes on up to a label in the next block.
            cut = [self._without_time(text) for text in (first, *texts[:-1])]
            first, *texts = [*(text for text, _ in cut), texts[-1]]
            stamps = [stamp for _, stamp in cut]
        groups: _Groups = {}
        _put(groups, _NOBODY, b"", first)
        streams = self.streams
        for label, text, stamp in zip(parts[1::2], texts, stamps, strict=True):
            whose = self._whose = streams.get(label) or self._stream_of(label)
            cut_at = text.find(b"\n") + 1
            if 0 < cut_at < len(text):
                _put(groups, whose, stamp, text[:cut_at])
                _put(groups, _NOBODY, b"", text[cut_at:])
            else:
                _put(groups, whose, stamp, text)
        # The stream that goes on in the next block is the last one.
        groups[self._whose] = groups.pop(self._whose, [])
        for whose, found in groups.items():
            for stamp, own in found:
                may_be_cut = self._labels.begin_lines and whose != _NOBODY
                lines = self._cut_lines.mended(whose, own) if may_be_cut else own
                yield Piece(*whose, b"".join(lines), stamp)

    def _one_by_one(self, block: bytes) -> Iterator[Piece]:
        labels = self._labels
        at, stamp = 0, b""
        for found in labels.tag.finditer(block):
            begin = found.start()
            begins_line = self._begins_line or at > 0
            text, next_stamp = _without_stamp(labels, block, at, begin, begins_line)
            if text:
                yield from _own_and_nobodys(labels, self._whose, text, stamp)
            self._whose = self._stream_of(found[0])
            at, stamp = found.end(), next_stamp
            if labels.spaced and block[at : at + 1] == b" ":
                at += 1
        if at < len(block):
            yield from _own_and_nobodys(labels, self._whose, block[at:], stamp)

    def _stream_of(self, label: bytes) -> Whose:
        found = self.streams.get(label)
        if found is None:
            if len(self.streams) >= _MOST_STREAMS:
                return _NOBODY
            rank, stream = self._labels.tag.findall(label)[0]
            found = self.streams[label] = (int(rank), stream.decode())
        return found

    def _without_time(self, text: bytes) -> tuple[bytes, bytes]:
        """The text before a label without the time in words that belongs to the label, and the time."""
        length = _TIME_BYTES + 2 if text.endswith(b"]") else _TIME_BYTES
        time = text[-length:]
        if time not in self._times:
            if _STAMP_OF_TAG.fullmatch(time) is None:
                return text, b""
            self._times.add(time)
        return text[: len(text) - len(time)], time


def _uncaptured(pattern: bytes) -> bytes:
    return _CAPTURES.sub(b"(?:", pattern)


def _form(labels: Labels | None) -> Form:
    """How whole lines with such labels look."""
    if labels is None:
        return NO_LABELS
    letters = string.ascii_letters if labels.tag is _TORCHRUN else string.digits
    second = b"" if labels.tag is _SLURM else letters.encode()
    fits = _is_logged if labels.logged else _is_time if labels.stamped else lambda _: False
    return Form(labels.tag, second, fits, labels.logged)


def _is_time(before: bytes) -> bool:
    """Whether all that stands before a label is a time in words, as ``_without_time`` cuts it off."""
    length = _TIME_BYTES + 2 if before.endswith(b"]") else _TIME_BYTES
    return len(before) == length and _STAMP_OF_TAG.fullmatch(before) is not None


def _is_logged(before: bytes) -> bool:
    """Whether all of it belongs to the label, as ``_without_stamp`` cuts it off."""
    if len(before) >= LONGEST_PREFIX or not before.endswith(_ENDS_OF_PREFIXES):
        return False
    time = _STAMP_OF_TAG.search(before)
    return read_stamp(before) is not None if time is None else time.start() == 0


def _put(groups: _Groups, whose: Whose, stamp: bytes, text: bytes) -> None:
    if not text:
        return
    own = groups.setdefault(whose, [])
    if own and own[-1][0] == stamp:
        own[-1][1].append(text)
    else:
        own.append((stamp, [text]))


def _own_and_nobodys(labels: Labels, whose: Whose, text: bytes, stamp: bytes) -> Iterator[Piece]:
    """A rank's piece ends with its line: every line of its own has a label."""
    cut = 0 if labels.logged else text.find(b"\n") + 1
    yield Piece(*whose, text[:cut] if cut else text, stamp)
    if 0 < cut < len(text):
        yield Piece(None, "", text[cut:], b"")


def _tags_of(data: bytes) -> Labels:
    """Tags with the name of the stream, and what stands around them."""
    at = max(data.find(_TAG_LITERAL) - _SAMPLE_BYTES, 0)
    sample = data[at : at + 2 * _SAMPLE_BYTES]
    stamped = logged = False
    followed: list[bytes] = []
    job = False
    for found in _TAG.finditer(sample):
        before = sample[sample.rfind(b"\n", 0, found.start()) + 1 : found.start()]
        words = _STAMP_OF_TAG.search(before[-LONGEST_PREFIX:])
        stamped = stamped or words is not None
        if words is None and len(before) < LONGEST_PREFIX and not _TAG.search(before):
            logged = logged or read_stamp(before) is not None
        followed.append(sample[found.end() : found.end() + 1])
        job = job or b"," in found[0]
    spaced = job and all(byte in (b" ", b"") for byte in followed)
    launcher = "horovodrun over Gloo" if not job else f"Open MPI{' 5' if spaced else ''}"
    return Labels(_TAG, launcher, spaced, stamped, logged)


def _sampled(data: bytes) -> bytes:
    """Whole lines from a file's beginning, middle and end."""
    if len(data) <= 3 * _SAMPLE_BYTES:
        return data
    middle = len(data) // 2
    inner = [data[at : at + _SAMPLE_BYTES] for at in (middle, len(data) - _SAMPLE_BYTES)]
    first = data[:_SAMPLE_BYTES].rpartition(b"\n")[0]
    return b"\n".join([first, *(part.partition(b"\n")[2].rpartition(b"\n")[0] for part in inner)])


def _blocks(data: bytes, labels: Labels | None, block_bytes: int) -> Iterator[bytes]:
    """The data in pieces that end with a line, or else before what may be a label."""
    if labels is not None and labels.begin_lines:
        # No line that srun has cut is in two blocks.
        block_bytes = max(block_bytes, LONGEST_CUT_LINE)
    at = 0
    while at < len(data):
        most = block_bytes if at else min(block_bytes, _FIRST_BLOCK_BYTES)
        until = at + most
        if until < len(data):
            until = (data.rfind(b"\n", at, until) + 1) or data.rfind(b"[", at + 1, until)
            until = until if until > at else at + most
        yield data[at:until]
        at = until


def _without_stamp(
    labels: Labels, block: bytes, at: int, end: int, begins_line: bool
) -> tuple[bytes, bytes]:
    """The text before a label without the timestamp that belongs to the label, and the timestamp."""
    text = block[at:end]
    if not (labels.stamped or labels.logged) or not text.endswith(_ENDS_OF_PREFIXES):
        return text, b""
    last = text[-LONGEST_PREFIX:]
    found = _STAMP_OF_TAG.search(last)
    if found is not None:
        return text[: len(text) - len(found[0])], found[0]
    # What stands between the beginning of a line and its label is a logger's.
    line = last.rfind(b"\n") + 1
    if (line or (at == 0 and begins_line)) and read_stamp(last[line:]) is not None:
        return text[: len(text) - len(last) + line], last[line:]
    return text, b""
