"""Read the figures of all lines of a kind as columns, with their ranks and timestamps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Floats, Ints

from ...launcher_output import LONGEST_LINE, Lines, line_blocks
from ...lines.line_blocks import Column
from ...pattern import joined_columns, matching, moments_of, stamps_before, texts_of
from ...rank_names import MOST_RANKS
from ...window_lines import WorkLines
from .figures import DATE_BYTES, FEWEST_LINES, Kind
from .vocabulary import DATES

# Larger numbers are damage.
_LARGEST = 1e18
_SI = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Rows:
    """The lines of a kind as columns."""

    kind: Kind
    #: For each figure its values, NaN where a text is no number; times of clocks are seconds.
    values: Sequence[Floats]
    #: The rank of each line (-1 without a label), the values of its timestamp, and the number of lines
    #: about other work up to it (``WorkLines``).
    stamps: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.stamps["rank"])

    def chosen(self, rows: Any) -> Rows:
        """Return some of the rows, by their numbers or a mask."""
        stamps = {name: column[rows] for name, column in self.stamps.items()}
        return Rows(self.kind, [column[rows] for column in self.values], stamps)


def without_stamps(count: int) -> dict[str, Column]:
    """Return the stamps of lines without labels and timestamps."""
    never = np.zeros(count, bool)
    unit = np.ones(count, np.int64)
    stamps = {"timed": never, "ns": 0 * unit, "zone_known": never, "resolution_ns": unit}
    return {"rank": -unit, **stamps, "year_known": ~never}


# -- all lines -------------------------------------------------------------------------------------


def rows_of(data: bytes, kind: Kind) -> Rows | None:
    """Read the figures of all lines of a kind; None if there are too few."""
    expression, literal = kind.expression, kind.literal.encode("latin-1")
    values: list[list[Floats]] = [[] for _ in kind.figures]
    stamps: list[Mapping[str, Column]] = []
    works = WorkLines()
    for lines in line_blocks(data) if len(data) else ():
        if not len(lines.start):
            continue
        at, texts = matching(lines, literal, expression)
        counts = works.counts(lines, at)
        if not len(at):
            continue
        for column, figure, array in zip(values, kind.figures, texts.values(), strict=True):
            column.append(numbers_of(array, is_clock=figure.is_clock))
        stamps.append({**stamps_of(lines, at), **counts})
    if not stamps or sum(len(part["rank"]) for part in stamps) < FEWEST_LINES:
        return None
    columns = [np.concatenate(pieces) for pieces in values]
    joined = joined_stamps(stamps, kind, columns)
    works.settle(joined)
    # Damaged lines have other texts in place of numbers.
    whole = np.logical_and.reduce([~np.isnan(numbers) for numbers in columns])
    return Rows(kind, columns, joined).chosen(whole) if whole.sum() >= FEWEST_LINES else None


def joined_stamps(
    stamps: Sequence[Mapping[str, Column]], kind: Kind, values: Sequence[Floats]
) -> dict[str, Column]:
    """Join the stamps of blocks: with the years of timestamps, and with ranks that are figures."""
    joined = dict(joined_columns(stamps) or {})
    for figure, numbers in zip(kind.figures, values, strict=True):
        if figure.word.quantity == "rank" and (joined["rank"] < 0).all():
            is_rank = (numbers >= 0) & (numbers < MOST_RANKS)
            joined["rank"] = np.where(is_rank, numbers, -1.0).astype(np.int64)
    return joined


def line_texts(lines: Lines) -> pa.Array:
    """Return the texts of lines; of very long ones the start."""
    return texts_of(lines.block, lines.start, np.minimum(lines.end, lines.start + LONGEST_LINE))


def mask_of(column: pa.Array) -> Bools:
    """Return booleans as a mask; nulls are false."""
    return np.asarray(arrow.numbers(column) == 1)


def numbers_of(texts: pa.Array, *, is_clock: bool) -> Floats:
    """Read numbers, with NaN for other texts; clocks become seconds."""
    strings = pc.cast(texts, pa.string(), safe=False)
    if is_clock:
        return _clocks(strings)
    try:
        numbers = np.asarray(arrow.numbers(pc.cast(strings, pa.float64())))
        return np.where(np.abs(numbers) <= _LARGEST, numbers, np.nan)
    except pa.ArrowInvalid:
        # Some have commas or letters.
        pass
    plain = pc.replace_substring(pc.utf8_rtrim(strings, characters=",:"), ",", "")
    numbers = _floats(pc.utf8_rtrim(plain, characters="KMGT."))
    for letter, factor in _SI.items():
        has_letter = mask_of(pc.ends_with(plain, letter))
        numbers = np.where(has_letter, numbers * factor, numbers)
    return numbers


_CLOCK_PARTS = (
    r"^(?:(?P<days>\d{1,4}) days?,? ?)?(?:(?P<hours>\d{1,4}):)?(?P<minutes>\d{1,4}):"
    r"(?P<seconds>\d\d(?:\.\d{1,9})?)"
)


def _clocks(strings: pa.Array) -> Floats:
    parts = pc.extract_regex(strings, _CLOCK_PARTS)
    days, hours, minutes, seconds = (_floats(part) for part in parts.flatten())
    return np.asarray(
        86400 * np.nan_to_num(days) + 3600 * np.nan_to_num(hours) + 60 * minutes + seconds
    )


def _floats(strings: pa.Array) -> Floats:
    valid = pc.match_substring_regex(strings, r"^[-+]?\d{1,20}(\.\d{0,20})?([eE][-+]?\d{1,3})?$")
    mask = mask_of(valid)
    numbers = np.full(len(mask), np.nan)
    numbers[mask] = arrow.numbers(pc.cast(strings.filter(arrow.array(mask)), pa.float64()))
    return np.where(np.abs(numbers) <= _LARGEST, numbers, np.nan)


def stamps_of(lines: Lines, at: Ints) -> dict[str, Column]:
    """Return the ranks of lines and the values of their timestamps."""
    columns = stamps_before(lines, at)
    if not columns["timed"].all():
        _put_dates(columns, lines, at)
    return {"rank": lines.rank[at], **columns}


def _put_dates(columns: Mapping[str, Column], lines: Lines, at: Ints) -> None:
    """Read timestamps after other text, such as the name of a program."""
    rows = np.flatnonzero(~columns["timed"])
    start = lines.start[at[rows]]
    end = np.minimum(lines.end[at[rows]], start + DATE_BYTES)
    heads = texts_of(lines.block, start, end)
    for form in DATES:
        parts = pc.extract_regex(heads, rf"(?:^|[^\d]){form}")
        valid = mask_of(parts.is_valid())
        if not valid.any():
            continue
        texts = [_usual(date) for date in parts.filter(arrow.array(valid)).to_pylist()]
        for name, column in moments_of(texts).items():
            columns[name][rows[valid]] = column
        return


def _usual(date: Mapping[str, bytes]) -> bytes:
    """Return a date and its clock in a form that all parsers read."""
    month_day = date["month"], date["day"]
    day = b"-".join((date["year"], *month_day)) if "year" in date else b"/".join(month_day)
    return day + b" " + date["clock"]
