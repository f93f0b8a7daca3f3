"""Match a pattern of lines against whole files at once.

A pattern describes the start of a line. Letters stand for themselves, blanks for any blanks, ``{name}``
for a field (``FIELDS``), and ``{}`` for anything up to the text that follows it, or up to the number
before that text (``{}{step} images/sec``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Ints
from stallscope.errors import UsageError

from .launcher_output import LONGEST_LINE, LONGEST_PREFIX, Labels, Lines, labels_of, line_blocks
from .lines.line_blocks import LineBlock
from .lines.timestamp_columns import in_assumed_years, is_blank, line_starts
from .lines.timestamps import MOMENT, Timestamp, latest_ns, read_dated, read_moment
from .pattern_columns import (
    FLOATS,
    MOST_DIGITS,
    MOST_EXPONENT_DIGITS,
    MOST_FRACTION_DIGITS,
    MOST_PADDING,
    Column,
    PatternPart,
    Walk,
    having,
    having_all,
    longest_text,
)

#: The start of a pattern's name.
PREFIX = "pattern:"

_FRACTION = (
    rf"(?:\.\d{{1,{MOST_FRACTION_DIGITS}}})?(?:[eE][-+]?\d{{1,{MOST_EXPONENT_DIGITS}}}(?!\d))?"
)
#: Fields and the regular expressions of their texts.
FIELDS = {
    "time": MOMENT,
    **{
        name: rf"\d{{1,{most}}}" + (_FRACTION if name in FLOATS else "")
        for name, most in MOST_DIGITS.items()
    },
}
# Blanks and colours at the start of a line.
_MOST_BEFORE_TEXT, _MOST_COLOUR_BYTES = 64, 12
_BEFORE_TEXT = rf"(?:[^\S\n]|\x1b\[[\d;]{{0,{_MOST_COLOUR_BYTES}}}m){{0,{_MOST_BEFORE_TEXT}}}"
_ESCAPE = 0x1B
_IN_COLOURS = np.isin(np.arange(256), list(b"0123456789;"))
_PADDING = {name: "" if name == "time" else f" {{0,{MOST_PADDING}}}" for name in FIELDS}
_WHOLE_NUMBERS = MOST_DIGITS.keys() - FLOATS
_FIELD = re.compile(r"\{(\w*)\}")
# Columns of timestamps: whether a line has one, and the values of a ``Timestamp``.
_TIMESTAMP = ("timed", "ns", "zone_known", "resolution_ns", "year_known")


class Pattern:
    """A pattern of the lines of a format.

    Args:
        text: the pattern.
        known: the fields that it may have.

    Raises:
        UsageError: if the text is not a pattern.
    """

    def __init__(self, text: str, known: Sequence[str] = tuple(FIELDS)) -> None:
        start, pieces = _split(text, known)
        self.text = text
        self.names = frozenset(piece.name for piece in pieces if piece.name)
        self._line = _compiled(start, pieces)
        self._parts = _parts(start, pieces)
        #: A text that every matching line contains, without blanks; empty if there is none.
        self.longest_text = longest_text(self._parts)

    def matches(self, lines: Lines) -> bool:
        """Whether any of these lines matches."""
        return len(self._lines(lines)[0]) > 0

    def all_columns(self, data: bytes, of_the_file: int = 0) -> Mapping[str, Column] | None:
        """Return the values of all matching lines as ``columns_of`` does; None if no line matches."""
        return columns_of([self], data, of_the_file)[0]

    def columns_in(
        self, lines: Lines, labels: Labels | None, of_the_file: int
    ) -> Mapping[str, Column]:
        """Return the values of matching lines.

        The ranks of a launcher's labels replace those in lines, unless they are local.
        """
        line, fields = self._lines(lines)
        rank = lines.rank[line]
        if "rank" not in fields:
            fields["rank"] = np.where(rank < 0, of_the_file, rank)
        elif labels is not None and not labels.local:
            fields["rank"] = np.where(rank < 0, fields["rank"], rank)
        if "time" in self.names:
            fields["timed"] = np.ones(len(line), bool)
        else:
            before = text_starts(lines.block, lines.time_start[line])
            fields |= stamps_before(lines.block, before, np.maximum(lines.time_end[line], before))
        if "ms" in fields:
            fields["seconds"] = fields.pop("ms") / 1e3
        return fields

    def _lines(self, lines: Lines) -> tuple[Ints, dict[str, Column]]:
        """Return the matching lines, in order, and their values."""
        block, starts = lines.block, lines.start
        line = having(block, self._parts)
        line = line[line < len(starts)]
        ends = np.minimum(lines.end[line], starts[line] + LONGEST_LINE)
        known, fields = Walk(block, line, text_starts(block, starts[line]), ends).along(self._parts)
        rest = having_all(block, self._parts, np.setdiff1d(line, known, assume_unique=True))
        ends = np.minimum(lines.end[rest], starts[rest] + LONGEST_LINE)
        others: list[int] = []
        rows: list[Mapping[str, float]] = []
        for number, start, end in zip(
            rest.tolist(), starts[rest].tolist(), ends.tolist(), strict=True
        ):
            row = self.values_in(block.bytes[start:end].tobytes())
            if row is not None:
                others.append(number)
                rows.append(row)
        if not rows:
            return known, fields
        order = np.argsort(np.append(known, others), kind="stable")
        return np.append(known, others)[order], {
            name: np.append(column, np.array([row[name] for row in rows], column.dtype))[order]
            for name, column in fields.items()
        }

    def values_in(self, text: bytes) -> Mapping[str, float] | None:
        """Return the values of one line; None if it does not match. The reference for ``columns_in``."""
        match = self._line.match(text)
        if match is None:
            return None
        parts = match.groupdict()
        row: dict[str, float] = {
            name: float(part) if name in FLOATS else int(part)
            for name, part in parts.items()
            if name != "time"
        }
        if "time" in parts:
            timestamp = read_moment(parts["time"])
            if timestamp is None:
                return None
            row |= {
                "ns": timestamp.ns,
                "zone_known": timestamp.zone_known,
                "resolution_ns": timestamp.resolution_ns,
                "year_known": timestamp.year_known,
            }
        return row


def first_in(patterns: Sequence[Pattern], data: bytes) -> Pattern | None:
    """Return the pattern that matches in the first block of a file with any match.

    If several match in it, the first one.
    """
    # Labels may cut the text in some of the lines, but not in all of them.
    occurs = {text: text in data for text in {pattern.longest_text for pattern in patterns}}
    possible = [pattern for pattern in patterns if occurs[pattern.longest_text]]
    for lines in line_blocks(data) if possible else ():
        pattern = next((pattern for pattern in possible if pattern.matches(lines)), None)
        if pattern is not None:
            return pattern
    return None


def columns_of(
    patterns: Sequence[Pattern], data: bytes, of_the_file: int = 0
) -> list[Mapping[str, Column] | None]:
    """Return the values of the lines that match each pattern (None if no line does), in one pass.

    Args:
        patterns: the patterns.
        data: the output of one or of all ranks.
        of_the_file: the rank of unlabelled lines.

    Returns:
        columns of equal length: ``rank``, the fields of the pattern, ``timed``, and for timed lines the
        values of a ``Timestamp``. The ranks of a launcher's labels replace those in lines, unless its
        numbers are those within a host.
    """
    have_ranks = any("rank" in pattern.names for pattern in patterns)
    labels = labels_of(data) if have_ranks else None
    pieces: list[list[Mapping[str, Column]]] = [[] for _ in patterns]
    for lines in line_blocks(data) if patterns else ():
        for pattern, parts in zip(patterns, pieces, strict=True):
            columns = pattern.columns_in(lines, labels, of_the_file)
            if len(columns["timed"]):
                parts.append(columns)
    return [_joined(parts) for parts in pieces]


def _joined(parts: Sequence[Mapping[str, Column]]) -> Mapping[str, Column] | None:
    if not parts:
        return None
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    _assume_years(columns)
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


def _assume_years(columns: Mapping[str, Column]) -> None:
    """Move timestamps without a year to the latest years in which they are not in the future."""
    without = ~columns["year_known"]
    if without.any():
        columns["ns"][without] = in_assumed_years(columns["ns"][without], latest_ns())


def stamps_before(block: LineBlock, start: Ints, end: Ints) -> dict[str, Column]:
    """Read the timestamps before lines, as ``read_dated`` does.

    Args:
        start: where the text that may contain a timestamp starts.
        end: where it ends.
    """
    end = np.minimum(end, start + LONGEST_PREFIX)
    timestamps = line_starts(block, start, end)
    known = (
        timestamps.exists,
        timestamps.ns,
        timestamps.zone_known,
        timestamps.resolution_ns,
        timestamps.year_known,
    )
    columns = dict(zip(_TIMESTAMP, known, strict=True))
    unclear = np.flatnonzero(timestamps.unclear)
    if len(unclear):
        places = zip(start[unclear].tolist(), end[unclear].tolist(), strict=True)
        texts = [block.bytes[first:last].tobytes() for first, last in places]
        _put(columns, unclear, [read_dated(text) for text in texts])
    return columns


def _put(columns: Mapping[str, Column], at: Ints, stamps: Sequence[Timestamp | None]) -> None:
    rows = [
        (False, 0, False, 1, True)
        if timestamp is None
        else (
            True,
            timestamp.ns,
            timestamp.zone_known,
            timestamp.resolution_ns,
            timestamp.year_known,
        )
        for timestamp in stamps
    ]
    for column, values in zip(columns.values(), zip(*rows, strict=True), strict=True):
        column[at] = values


class _Piece(NamedTuple):
    """A field or ``{}``, and the text after it."""

    #: Empty for ``{}`` alone.
    name: str
    text: str
    #: Whether anything may precede it.
    skips: bool


_ANYTHING = _Piece("", "", True)


def _split(pattern: str, known: Sequence[str]) -> tuple[str, list[_Piece]]:
    """Split a pattern into the text at its start and the pieces after it."""
    start, *rest = _FIELD.split(pattern)
    names = [name for name in rest[0::2] if name]
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        what = f"{{{unknown[0]}}} is not a field" if unknown else "a field occurs twice"
        fields = ", ".join(f"{{{name}}}" for name in known)
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


def _compiled(start: str, pieces: Sequence[_Piece]) -> re.Pattern[bytes]:
    expression = _BEFORE_TEXT + _literal(start)
    for name, text, skips in pieces:
        field = f"(?P<{name}>{FIELDS[name]})" if name else ""
        if not skips:
            expression += _PADDING[name] + field + _literal(text)
        elif text:
            # The search for a skipped text is not repeated: matching a line takes one pass.
            skipped = r"(?:.*?(?<![\w.]))??" if name else ".*?"
            expression += f"(?>{skipped}{field}{_literal(text)})"
    return re.compile(expression.encode(), re.DOTALL)


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


def _literal(text: str) -> str:
    return re.sub(r"(?:\\\s|\s)+", r"\\s+", re.escape(text))


def _parts(start: str, pieces: Sequence[_Piece]) -> list[PatternPart]:
    """Convert a pattern to the parts that ``Walk`` follows."""
    parts = _parts_of(start)
    for name, text, skips in pieces:
        parts_of_text = _parts_of(text)
        if not skips:
            parts.append(PatternPart(name))
        elif text:
            first, *rest = parts_of_text
            if first.kind == "text":
                parts_of_text = [PatternPart("skip", first.text, number=name), *rest]
            elif rest:
                skip = PatternPart("skip", rest[0].text, blank_before=True, number=name)
                parts_of_text = [skip, *rest[1:]]
            else:
                parts_of_text = [PatternPart("skip"), first]
        parts += parts_of_text
    return parts


def _parts_of(text: str) -> list[PatternPart]:
    return [
        PatternPart("blanks") if piece.isspace() else PatternPart("text", piece.encode())
        for piece in re.split(r"(\s+)", text)
        if piece
    ]
