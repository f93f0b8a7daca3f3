"""Read the lines of a pattern, or of any regular expression, as columns.

A pattern describes the start of a line. Letters stand for themselves, blanks for any blanks, ``{name}``
for a field (``FIELDS``), and ``{}`` for anything up to the text that follows it, or up to the number
before that text (``{}{step} images/sec``). RE2 reads all lines of a block, in time that is linear in
their length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Ints
from stallscope.errors import UsageError

from .launcher_output import LONGEST_LINE, LONGEST_PREFIX, Labels, Lines, labels_of, line_blocks
from .lines.line_blocks import Column, LineBlock, Needle
from .lines.timestamp_columns import Moments, in_assumed_years, is_blank, line_starts, moments
from .lines.timestamps import MOMENT, Timestamp, latest_ns, read_dated, read_moment
from .window_lines import HALF, WorkLines, decimals_of

#: The start of a pattern's name.
PREFIX = "pattern:"

# The most digits of whole numbers, and before the point of others.
_MOST_DIGITS: Mapping[str, int] = {
    "rank": 6,
    "epoch": 9,
    "step": 12,
    "steps": 12,
    "seconds": 9,
    "mean_seconds": 9,
    "ms": 12,
    "data": 9,
    "mean_data": 9,
    "rate": 12,
}
#: Fields with a fraction or an exponent.
FLOATS = frozenset({"seconds", "mean_seconds", "ms", "data", "mean_data", "rate"})
_FRACTION = r"(?:\.\d{1,20})?(?:[eE][-+]?\d{1,2})?"
#: Fields and the regular expressions of their texts.
FIELDS = {
    # RE2 does not look ahead: the text after a field decides.
    "time": MOMENT.replace(r"(?!\d)", ""),
    **{
        name: rf"\d{{1,{most}}}" + (_FRACTION if name in FLOATS else "")
        for name, most in _MOST_DIGITS.items()
    },
}
_WHOLE_NUMBERS = _MOST_DIGITS.keys() - FLOATS
# Blanks and colours at the start of a line.
_BEFORE_TEXT = r"(?:[\s\v]|\x1b\[[\d;]*m)*"
_MOST_BEFORE_TEXT, _MOST_COLOUR_BYTES = 64, 12
_ESCAPE = 0x1B
_IN_COLOURS = np.isin(np.arange(256), list(b"0123456789;"))
# Numbers are printed as wide as the largest one: ``[  0/500]``.
_PADDING = {name: "" if name == "time" else " *" for name in FIELDS}
_FIELD = re.compile(r"\{(\w*)\}")
# Texts that lines contain as they are: a needle's ``\d`` is any digit.
_NO_NEEDLE = re.compile(r"\s+|\\d")
# Columns of timestamps: whether a line has one, and the values of a ``Timestamp``.
_TIMESTAMP = ("timed", "ns", "zone_known", "resolution_ns", "year_known")
_NEVER = Timestamp(0, False, 1, True)


class Pattern:
    """A pattern of lines.

    Args:
        text: the pattern.

    Raises:
        UsageError: if the text is not a pattern.
    """

    def __init__(self, text: str) -> None:
        start, pieces = _split(text)
        self.text = text
        self.names = frozenset(piece.name for piece in pieces if piece.name)
        #: The regular expression of its lines, for Python's ``re`` and for RE2.
        self.expression = _expression(start, pieces)
        texts = [
            part for piece in (start, *(p.text for p in pieces)) for part in _NO_NEEDLE.split(piece)
        ]
        #: A text that every matching line contains, without blanks; empty if there is none.
        self.longest_text = max(texts, key=len).encode()

    def occurs_in(self, data: bytes) -> bool:
        """Whether any line matches."""
        # Labels may cut the text in some of the lines, but not in all of them.
        blocks = line_blocks(data) if self.longest_text in data else ()
        return any(len(self._lines(lines)[0]) for lines in blocks)

    def all_columns(self, data: bytes, of_the_file: int = 0) -> dict[str, Column] | None:
        """Return the values of all matching lines; None if no line matches.

        Args:
            data: the output of one or of all ranks.
            of_the_file: the rank of unlabelled lines.

        Returns:
            Columns of equal length: ``rank``, the fields of the pattern, ``timed``, and for timed lines
            the values of a ``Timestamp``. The ranks of a launcher's labels replace those in lines,
            unless its numbers are those within a host.
        """
        labels = labels_of(data) if "rank" in self.names else None
        pieces: list[Mapping[str, Column]] = []
        works = WorkLines()
        for lines in line_blocks(data):
            columns, at = self.columns_in(lines, labels, of_the_file)
            counts = works.counts(lines, at) if "step" in columns else {}
            if len(columns["timed"]):
                pieces.append({**columns, **counts})
        joined = joined_columns(pieces)
        if joined is not None and "step" in joined:
            works.settle(joined)
        return joined

    def columns_in(
        self, lines: Lines, labels: Labels | None, of_the_file: int
    ) -> tuple[Mapping[str, Column], Ints]:
        """Return the values of matching lines, and their places."""
        line, fields = self._lines(lines)
        rank = lines.rank[line]
        if "rank" not in fields:
            fields["rank"] = np.where(rank < 0, of_the_file, rank)
        elif labels is not None and not labels.local:
            fields["rank"] = np.where(rank < 0, fields["rank"], rank)
        if "time" not in self.names:
            fields |= stamps_before(lines, line)
        for name in ("ms", HALF + "ms"):
            if name in fields:
                fields[name.replace("ms", "seconds")] = fields.pop(name) / 1e3
        return fields, line

    def _lines(self, lines: Lines) -> tuple[Ints, dict[str, Column]]:
        """Return the matching lines, in order, and their values."""
        line, texts = matching(lines, self.longest_text, self.expression)
        fields: dict[str, Column] = {}
        for name in [name for name in _MOST_DIGITS if name in texts]:
            kind = pa.float64() if name in FLOATS else pa.int64()
            fields[name] = arrow.numbers(pc.cast(texts[name].cast(pa.string()), kind))
            if name in FLOATS and len(line):
                # Times that never change are as precise as their text.
                decimals = decimals_of(texts[name][0].as_py().decode())
                fields[HALF + name] = np.full(len(line), 0.5 * 10.0**-decimals)
        if "time" not in self.names:
            return line, fields
        fields |= moments_of(texts["time"].to_pylist())
        timed = fields["timed"]
        return line[timed], {name: column[timed] for name, column in fields.items()}


# -- the lines of a regular expression --------------------------------------------------------------


def matching(lines: Lines, literal: bytes, expression: str) -> tuple[Ints, dict[str, pa.Array]]:
    """Return which lines match a regular expression, and the texts of its groups by their names.

    Args:
        lines: the lines.
        literal: a text that all matching lines contain.
        expression: the regular expression, with named groups.
    """
    line = np.arange(len(lines.start))
    if literal:
        line = lines.block.lines_of(lines.block.places(Needle(literal)))
        line = line[np.append(True, line[1:] != line[:-1])[: len(line)]]
        line = line[line < len(lines.start)]
    start, end = lines.start[line], np.minimum(lines.end[line], lines.start[line] + LONGEST_LINE)
    parts = pc.extract_regex(texts_of(lines.block, start, end), expression)
    matched = np.asarray(arrow.numbers(parts.is_valid()) == 1)
    if not matched.all():
        line, parts = line[matched], parts.filter(arrow.array(matched))
    names = [field.name for field in parts.type]
    return line, dict(zip(names, parts.flatten(), strict=True))


def texts_of(block: LineBlock, start: Ints, end: Ints) -> pa.Array:
    """Return texts of a block; those in order are copied together."""
    if len(start) > 1 and (start[1:] >= end[:-1]).all() and (end >= start).all():
        # Every second entry is the text between two lines.
        offsets = np.append(np.stack([start, end], axis=1).ravel(), end[-1]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.text)]
        every = pa.Array.from_buffers(pa.binary(), 2 * len(start), buffers)
        return every.take(arrow.array(np.arange(0, 2 * len(start), 2)))
    pieces = [
        block.text[first:last] for first, last in zip(start.tolist(), end.tolist(), strict=True)
    ]
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.binary(), len(pieces), buffers)


# -- columns ---------------------------------------------------------------------------------------


def joined_columns(parts: Sequence[Mapping[str, Column]]) -> dict[str, Column] | None:
    """Join the columns of blocks; None without any.

    Timestamps without a year are moved to the latest years in which they are not in the future.
    """
    if not parts:
        return None
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    without = columns["timed"] & ~columns["year_known"]
    if without.any():
        columns["ns"][without] = in_assumed_years(columns["ns"][without], latest_ns())
    return columns


def by_rank(columns: Mapping[str, Column]) -> dict[int, dict[str, Column]]:
    """Split columns by rank, each rank's lines in their order."""
    order = np.argsort(columns["rank"], kind="stable")
    ranks, firsts = np.unique(columns["rank"][order], return_index=True)
    pieces = np.split(order, firsts[1:])
    return {
        rank: {name: column[rows] for name, column in columns.items() if name != "rank"}
        for rank, rows in zip(ranks.tolist(), pieces, strict=True)
    }


def year_note(columns: Mapping[str, Column]) -> str | None:
    """Return a note on the year that is assumed for timestamps without one; None if all have one."""
    without = np.flatnonzero(columns["timed"] & ~columns["year_known"])
    if not len(without):
        return None
    first = timestamp_at(columns, int(without[0]))
    return f"the timestamps have no year: the first is assumed to be of {first.text[:4]}"


def timestamp_at(columns: Mapping[str, Column], at: int) -> Timestamp:
    """Return the timestamp of a timed line."""
    known = (columns[name][at].item() for name in _TIMESTAMP[1:])
    return Timestamp(*known)


# -- timestamps -------------------------------------------------------------------------------------


def stamps_before(lines: Lines, line: Ints) -> dict[str, Column]:
    """Read the timestamps before some of the lines, as ``read_dated`` does."""
    block = lines.block
    start = text_starts(block, lines.time_start[line])
    end = np.minimum(np.maximum(lines.time_end[line], start), start + LONGEST_PREFIX)
    return _columns(
        line_starts(block, start, end),
        lambda at: read_dated(block.bytes[start[at] : end[at]].tobytes()),
    )


def moments_of(pieces: Sequence[bytes]) -> dict[str, Column]:
    """Read texts that are timestamps, as ``read_moment`` does."""
    ends = np.cumsum([len(piece) + 1 for piece in pieces], dtype=np.int64)
    start = np.append(0, ends[:-1])[: len(ends)]
    timestamps = moments(LineBlock(b"\n".join(pieces)), start)
    # A text of a rare form has the form of a timestamp.
    timestamps.unclear |= ~timestamps.exists
    return _columns(timestamps, lambda at: read_moment(pieces[at]))


def _columns(
    timestamps: Moments, read_one_by_one: Callable[[int], Timestamp | None]
) -> dict[str, Column]:
    known = (
        timestamps.exists,
        timestamps.ns,
        timestamps.zone_known,
        timestamps.resolution_ns,
        timestamps.year_known,
    )
    for at in np.flatnonzero(timestamps.unclear).tolist():
        timestamp = read_one_by_one(at)
        values = astuple(timestamp or _NEVER)
        for column, value in zip(known, (timestamp is not None, *values), strict=True):
            column[at] = value
    return dict(zip(_TIMESTAMP, known, strict=True))


def text_starts(block: LineBlock, start: Ints) -> Ints:
    """Return where the texts of lines start, after blanks and colours."""
    byte = block.bytes[np.minimum(start, block.size - 1)]
    rest = np.flatnonzero(is_blank(byte) | (byte == _ESCAPE))
    start = start.copy() if len(rest) else start
    for _ in range(_MOST_BEFORE_TEXT):
        if not len(rest):
            break
        at = start[rest]
        byte = block.bytes[np.minimum(at, block.size - 1)]
        length = np.where(is_blank(byte), 1, 0)
        coloured = byte == _ESCAPE
        length[coloured] = _colour_lengths(block, at[coloured])
        start[rest] += length
        rest = rest[length > 0]
    return start


def _colour_lengths(block: LineBlock, at: Ints) -> Ints:
    """Return the lengths of the colours at these places, 0 if there is none."""
    length = np.zeros(len(at), np.int64)
    goes_on = block.bytes[np.minimum(at + 1, block.size - 1)] == ord("[")
    for place in range(2, _MOST_COLOUR_BYTES + 3):
        if not goes_on.any():
            break
        byte = block.bytes[np.minimum(at + place, block.size - 1)]
        length[goes_on & (byte == ord("m"))] = place + 1
        goes_on &= _IN_COLOURS[byte]
    return length


# -- expressions -----------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A field or ``{}``, and the text after it."""

    #: Empty for ``{}`` alone.
    name: str
    text: str
    #: Whether anything may precede it.
    skips: bool


_ANYTHING = _Piece("", "", True)


def _split(pattern: str) -> tuple[str, list[_Piece]]:
    """Split a pattern into the text at its start and the pieces after it."""
    start, *rest = _FIELD.split(pattern)
    names = [name for name in rest[0::2] if name]
    unknown = [name for name in names if name not in FIELDS]
    if unknown or len(set(names)) < len(names):
        what = f"{{{unknown[0]}}} is not a field" if unknown else "a field occurs twice"
        fields = ", ".join(f"{{{name}}}" for name in FIELDS)
        raise UsageError(f"{PREFIX}{pattern}: {what}; there are {fields} and {{}} for anything")
    if not {"epoch", "step"} & set(names):
        raise UsageError(f"{PREFIX}{pattern}: a pattern needs {{epoch}} or {{step}}")
    pieces: list[_Piece] = []
    for name, text in zip(rest[0::2], rest[1::2], strict=True):
        # ``{}{step} images``: the text tells where the number is.
        skips = pieces[-1:] == [_ANYTHING] and name in _WHOLE_NUMBERS and bool(text.strip())
        if skips:
            pieces.pop()
        pieces.append(_Piece(name, text, skips or not name))
    if _ANYTHING in pieces[:-1]:
        raise UsageError(f"{PREFIX}{pattern}: text has to follow {{}}, to know where it ends")
    return start, pieces


def _expression(start: str, pieces: Sequence[_Piece]) -> str:
    expression = "(?s)^" + _BEFORE_TEXT + _literal(start)
    for name, text, skips in pieces:
        field = f"(?P<{name}>{FIELDS[name]})" if name else ""
        if not skips:
            expression += _PADDING[name] + field + _literal(text)
        elif text:
            skipped = r"(?:.*?[^\w.])??" if name else ".*?"
            expression += skipped + field + _literal(text)
    return expression


def _literal(text: str) -> str:
    return re.sub(r"(?:\\\s|\s)+", r"\\s+", re.escape(text))
