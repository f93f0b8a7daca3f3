"""Choose lines in columns of numbers: those with a short text, and those of a form with their fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Ints

from ..lines.line_blocks import Column, LineBlock, Needle, groups_of, lengths_of, texts_of
from ..lines.timestamp_columns import dated_columns
from .labels import LONGEST_PREFIX, labels_of
from .splitting import BLOCK_BYTES, Fragments, has_cut_lines

#: Longer lines are not for people to read.
LONGEST_LINE = 64 << 10
# Lines that are longer on average are overwritten bars, and all of them become objects.
_LONG_LINES = 2048

# The ends of labels that may be in the middle of lines, with a space after them.
_ENDS_OF_LABELS = (b">:", b">: ", b"]:", b"] ", b": ")
# Quantifiers, escapes and names in a regular expression: other digits are those of texts.
_NO_TEXT = re.compile(r"\{\d+(?:,\d*)?\}|\\x[0-9a-f]{2}|\\.|\?P<\w+>")
# One in so many lines at most has digits at other places than the lines before; by the first lines.
_LINES_ALIKE, _FIRST_LINES = 4, 128


@dataclass(frozen=True)
class LineFilter:
    """Selects lines by short texts."""

    #: Each needed line contains one of these, or ends with it; ``\\d`` before or after a needle is any
    #: digit.
    needles: tuple[bytes, ...]
    #: Whether a line with a needle is needed.
    accepts: Callable[[bytes], object] = bool
    #: Updates of a bar have one of these: only the last of successive updates is needed.
    updates: tuple[bytes, ...] = ()
    #: Lines with one of these are not updates.
    not_updates: tuple[bytes, ...] = ()

    @cached_property
    def _needles(self) -> Sequence[Sequence[Needle]]:
        every = (self.needles, self.updates, self.not_updates)
        return [[Needle(needle) for needle in needles] for needles in every]

    def candidates(self, block: LineBlock, fragments: Fragments, needed: Bools) -> Bools:
        """Select the fragments that may be needed lines.

        Args:
            block: the block.
            fragments: its fragments.
            needed: fragments that are needed in any case.
        """
        if len(block.ends) * _LONG_LINES < block.size:
            return np.ones(len(needed), bool)
        line = _line_numbers(block, fragments)
        needles, updates, not_updates = self._needles
        chosen = _lines_with(needles, block)[line]
        is_update = _lines_showing(updates, block)[line]
        if is_update.any():
            alone = np.bincount(line)[line] == 1
            chosen |= is_update & ~alone
            # A line that is partly overwritten shows something else.
            differs = _overwritten(block) | _lines_with(not_updates, block)
            chosen &= ~(is_update & alone) | differs[line]
        chosen |= needed
        chosen[_last_of_each(np.flatnonzero(is_update & ~chosen), chosen, fragments.stream)] = True
        return chosen


def _line_numbers(block: LineBlock, fragments: Fragments) -> Ints:
    """Return the number of each fragment's line."""
    if len(fragments.end) == len(block.ends) and fragments.complete.all():
        return np.arange(len(fragments.end))
    return block.lines_of(fragments.start)


def _lines_with(needles: Sequence[Needle], block: LineBlock) -> Bools:
    """Return which lines of a block contain a needle."""
    matches = np.zeros(len(block.ends) + 1, bool)
    for needle in needles:
        matches[block.lines_of(block.places(needle))] = True
    return matches


def _lines_showing(needles: Sequence[Needle], block: LineBlock) -> Bools:
    """Return which lines of a block contain a needle that no carriage return has overwritten."""
    returns = _returns(block)
    last = np.full(len(block.ends) + 1, -1)
    last[block.lines_of(returns)] = returns
    matches = np.zeros(len(block.ends) + 1, bool)
    for needle in needles:
        places = block.places(needle)
        line = block.lines_of(places)
        matches[line[places > last[line]]] = True
    return matches


def _overwritten(block: LineBlock) -> Bools:
    """Return which lines contain carriage returns before their ends."""
    overwritten = np.zeros(len(block.ends) + 1, bool)
    overwritten[block.lines_of(_returns(block))] = True
    return overwritten


def _returns(block: LineBlock) -> Ints:
    """Find the carriage returns before the ends of lines."""
    at = block.having(ord("\r"))
    after = block.bytes[at + 1]
    return np.asarray(at[(after != ord("\n")) & (after != ord("\r"))])


def _last_of_each(updates: Ints, chosen: Bools, stream: Ints) -> Ints:
    """Return each stream's last updates before chosen fragments, and before the end of the block."""
    stretch = np.searchsorted(np.flatnonzero(chosen), updates)
    order = np.lexsort((stretch, stream[updates]))
    streams, stretch = stream[updates][order], stretch[order]
    last = np.append((streams[1:] != streams[:-1]) | (stretch[1:] != stretch[:-1]), True)
    last_updates: Ints = updates[order][last[: len(updates)]]
    return last_updates


# -- Search for a text that labels may have cut, without splitting the output by rank -------------
#
# The search never misses a text, and may report one that is not there.


def may_contain(data: bytes, text: bytes) -> bool:
    """Whether the output of any rank may contain a text, or end with a part of it.

    Args:
        text: without line ends.
    """
    if text in data:
        return True
    labels = labels_of(data)
    # Labels at the starts of lines cut no text, unless lines are too long.
    if labels is None or (labels.start_lines and not (labels.cut_lines and has_cut_lines(data))):
        return False
    # A launcher's own text continues in its next line, except with srun.
    before = labels.pattern if labels.start_lines else rb"(?:%s ?|\n)" % labels.pattern
    last = data[-len(text) - LONGEST_PREFIX :]
    cut = re.compile(rb"%s.{0,%d}\Z" % (before, len(text)), re.MULTILINE)
    if not data.endswith(b"\n") and cut.search(last):
        return True
    ends = [re.escape(text[at:]) for at in range(1, len(text))]
    ending = re.compile(rb"%s(?:%s)\Z" % (before, b"|".join(ends)), re.MULTILINE)
    places = _places_after(
        data, text[-1], [text[-3:], *_with_ends((*_ENDS_OF_LABELS, b"\n"), text)]
    )
    return any(ending.search(data, max(at - LONGEST_PREFIX, 0), at) for at in places)


def _with_ends(before: Iterable[bytes], text: bytes) -> Iterator[bytes]:
    for label_end in before:
        yield label_end + text[-1:]
        yield label_end + text[-2:]


def _places_after(data: bytes, last: int, texts: Iterable[bytes]) -> Iterator[int]:
    """Yield the places after a byte that may end one of these texts, by the two bytes before it."""
    likely = np.zeros((256, 256), bool)
    for text in texts:
        likely[text[-3] if len(text) > 2 else slice(None), text[-2]] = True
    whole = np.frombuffer(data, np.uint8)
    for first in range(2, len(data), BLOCK_BYTES):
        at = np.flatnonzero(whole[first : first + BLOCK_BYTES] == last) + first
        yield from (at[likely[whole[at - 2], whole[at - 1]]] + 1).tolist()


# -- lines as columns ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lines:
    """Lines of a block as columns, one entry each; the first lines of the block in their order."""

    block: LineBlock
    #: -1 for lines without a label.
    rank: Ints
    #: Where in the block their texts start, after their labels, and where they end.
    start: Ints
    end: Ints
    #: Where the texts are that may contain their timestamps.
    time_start: Ints
    time_end: Ints


class LineField(NamedTuple):
    """A field of lines: its text and the text before it, as regular expressions for RE2."""

    before: str
    name: str
    text: str


class LineForm:
    """Finds the lines of a form, and the texts of their fields.

    Lines with digits at the same places have their fields at the same places, so RE2, which takes ten
    times as long as anything else, searches one of them. Forms with digits of their own have no such
    lines.

    Args:
        fields: the fields, in their order.
        after: the text after the last one, as a regular expression.
        literals: texts each of which all lines contain.
    """

    def __init__(self, fields: Sequence[LineField], after: str, literals: Iterable[bytes]) -> None:
        self._names = [field.name for field in fields]
        self._literals = [Needle(literal) for literal in literals if literal]
        groups = [f"(?P<{field.name}>{field.text})" for field in fields]
        befores = [field.before for field in fields]
        #: The regular expression of its lines.
        self.expression = _expression(befores, groups, after)
        # The lengths of all texts tell where the fields are.
        befores = [f"(?P<before_{at}>{before})" for at, before in enumerate(befores)]
        self._in_pieces = _expression(befores, groups, after)
        self._is_blind = not re.search(r"\d", _NO_TEXT.sub("", self._in_pieces))
        # The last block's texts with equal digits, which the next one most often has, too: a row for
        # each (-1 without a match), and the ends of the pieces of each row.
        self._known: tuple[Mapping[bytes, int], Ints] = {}, np.zeros((2 * len(fields), 0), np.int64)

    def matching(self, lines: Lines) -> tuple[Ints, dict[str, pa.Array]]:
        """Return which lines match, and the texts of their fields by name."""
        line = np.arange(len(lines.start))
        if self._literals:
            line = lines.block.lines_of(lines.block.places_of_rarest(self._literals))
            line = line[np.append(True, line[1:] != line[:-1])[: len(line)]]
            line = line[line < len(lines.start)]
        start = lines.start[line]
        end = np.minimum(lines.end[line], start + LONGEST_LINE)
        shapes = self._shapes(lines.block, start, end) if self._is_blind else None
        if shapes is None:
            matched, fields = groups_of(texts_of(lines.block.text, start, end), self.expression)
        else:
            matched, places = self._places_by_shape(shapes)
            start = start[matched]
            fields = {
                name: texts_of(lines.block.text, start + at, start + until)
                for name, (at, until) in zip(self._names, places, strict=True)
            }
        return line[matched], fields

    def _shapes(self, block: LineBlock, start: Ints, end: Ints) -> pa.Array | None:
        """Return texts with equal digits, encoded; None if few of them are alike."""
        for count in (_FIRST_LINES, len(start)):
            shapes = texts_of(block.digits_alike, start[:count], end[:count])
            shapes = shapes.dictionary_encode()
            if len(shapes.dictionary) * _LINES_ALIKE > len(shapes):
                return None
        return shapes

    def _places_by_shape(self, shapes: pa.Array) -> tuple[Bools, Sequence[tuple[Ints, Ints]]]:
        """Return which texts match, and in these the start and the end of each field.

        Args:
            shapes: the texts, encoded.
        """
        texts, (rows, ends) = shapes.dictionary.to_pylist(), self._known
        if not rows.keys() >= {*texts}:
            known, pieces = groups_of(shapes.dictionary, self._in_pieces)
            ends = np.cumsum([lengths_of(piece) for piece in pieces.values()], axis=0)
            rows = dict(zip(texts, np.where(known, np.cumsum(known) - 1, -1).tolist(), strict=True))
            self._known = rows, ends
        row = np.array([rows[text] for text in texts], np.int64)[arrow.numbers(shapes.indices)]
        matched = row >= 0
        places = ends[:, row[matched]]
        return matched, [*zip(places[0::2], places[1::2], strict=True)]


def _expression(befores: Sequence[str], groups: Sequence[str], after: str) -> str:
    pairs = zip(befores, groups, strict=True)
    return "(?s)^" + "".join(before + group for before, group in pairs) + after


def stamps_before(lines: Lines, line: Ints) -> dict[str, Column]:
    """Read the timestamps before some of the lines, as ``read_dated`` does."""
    return dated_columns(lines.block, lines.time_start[line], lines.time_end[line], LONGEST_PREFIX)
