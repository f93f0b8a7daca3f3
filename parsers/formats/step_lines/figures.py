"""Find the figures of lines that repeat, and read them from all lines of their kind.

1. A sample of lines with a word for steps is taken apart into figures, each with its word.
2. Lines with the same words are a kind: the texts before their figures become one regular expression.
3. RE2 reads the figures of all lines of a kind, in time that is linear in their length.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Floats, Ints

from ...launcher_output import LONGEST_LINE, LineFilter, Lines, line_blocks, rank_lines
from ...lines.line_blocks import sample_parts
from ...lines.timestamp_columns import in_assumed_years
from ...lines.timestamps import DATED_MOMENT, latest_ns
from ...pattern import stamps_before, text_starts
from ...pattern_columns import Column
from .vocabulary import DATES, UNIT, Quantity, Word, word_of

#: The size of the sample: a whole file, or parts of its start, middle and end.
SAMPLE_BYTES = 3 << 18
# The most lines of the sample, the most characters and figures of a line, and the most kinds.
_MOST_LINES = 3000
_MOST_CHARACTERS = 600
_MOST_FIGURES = 40
_MOST_KINDS = 12
#: A state of a bar (``bars``).
BAR = re.compile(rb"\d(?:/\d{1,9}|it) \[\d{1,4}:\d\d")
#: Fewer lines show no regularity.
FEWEST_LINES = 4

_NAMED = LineFilter(
    (
        b"poch",
        b"EPOCH",
        b"tep",
        b"STEP",
        b"iter",
        b"Iter",
        b"ITER",
        b"itr",
        b"atch",
        b"pdate",
        b"][",
    ),
)
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,20})(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?"
_CLOCK = r"(?:\d{1,4} days?,? ?)?\d{1,4}:\d\d(?::\d\d)?(?:\.\d{1,9})?"
_FIGURE = re.compile(
    rf"(?<![\w@.])(?:(?P<clock>{_CLOCK})(?![\d:])"
    rf"|(?P<number>{_NUMBER})(?:(?P<si>[KMGT])(?![A-Za-z]))?(?:\s?(?P<unit>{UNIT})(?![\w/]))?)"
)
_DATE = re.compile(rf"(?<![\w.]){DATED_MOMENT}")
_OTHER_DATES = re.compile("|".join(re.sub(r"\?P<\w+>", "?:", form) for form in DATES))
# The start of the name of a figure.
_NAME_STARTS = re.compile(r"[|;,{}\t]|\s{2,}| - |: (?=\S)")
_ATTACHED = re.compile(r"^[A-Za-z%]+")
_BLANKS = re.compile(r"\s+")
_NO_FIGURE = ("other", "trains", "total")
_EVALUATES = re.compile(r"(?i)(?<![a-z])(?:eval|valid|val(?![a-z])|test|infer|predict|generat)")
# The longest text before a figure that tells it from others.
_MOST_BEFORE = 60
#: The text of a number or a clock for RE2.
_VALUE = r"([-+]?(?:\d{1,4} days?,? ?)?[\d:][\d:,.eE+\-]*[KMGT]?)"
_SI = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_DATE_BYTES = 160


class Figure(NamedTuple):
    """A figure in a line of the sample."""

    word: Word
    #: The name as words, for those of the same meaning.
    name: str
    #: The text between the figure before, or the start of the line, and this one.
    before: str
    is_clock: bool
    #: Whether it is in parentheses after a figure of the same meaning.
    in_parentheses: bool
    text: str


@dataclass(frozen=True)
class Kind:
    """Lines with the same figures."""

    figures: Sequence[Figure]
    #: For each figure the text before it in all lines.
    anchors: Sequence[str]
    #: The number of such lines in the sample.
    lines: int
    #: The names of all figures in its lines.
    words: frozenset[str]
    #: Whether some of them are figures that only training has.
    trains: bool

    @property
    def expression(self) -> str:
        """The regular expression of its lines for RE2, with a group for each figure."""
        parts = [
            f"{_escaped(anchor)}(?P<f{at}>{_VALUE[1:-1]})" for at, anchor in enumerate(self.anchors)
        ]
        return "(?s)" + ".*?".join(parts)

    @property
    def literal(self) -> str:
        """The longest text without blanks that all of its lines contain."""
        pieces = (piece for anchor in self.anchors for piece in anchor.split())
        return max(pieces, key=len, default="")


@dataclass(frozen=True)
class Rows:
    """The lines of a kind as columns."""

    kind: Kind
    #: For each figure its values, NaN where a text is no number; times of clocks are seconds.
    values: Sequence[Floats]
    #: The rank of each line (-1 without a label) and the values of its timestamp.
    stamps: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.stamps["rank"])

    def chosen(self, rows: Any) -> Rows:
        """Return some of the rows, by their numbers or a mask."""
        stamps = {name: column[rows] for name, column in self.stamps.items()}
        return Rows(self.kind, [column[rows] for column in self.values], stamps)


# -- the sample ------------------------------------------------------------------------------------


def kinds_in(data: bytes) -> list[Kind]:
    """Return the kinds of lines with a counter that repeat, the most frequent first."""
    groups: dict[tuple[tuple[Quantity, str], ...], list[list[Figure]]] = defaultdict(list)
    words: dict[object, set[str]] = defaultdict(set)
    training: dict[object, bool] = defaultdict(bool)
    for text in _sample(data):
        figures = figures_of(text)
        meant = [figure for figure in figures if figure.word.quantity not in _NO_FIGURE]
        if _counts_training(figures):
            key = tuple((figure.word.quantity, figure.name) for figure in meant)
            groups[key].append(meant)
            words[key] |= {figure.name for figure in figures}
            training[key] |= any(figure.word.quantity == "trains" for figure in figures)
    enough = [(key, lines) for key, lines in groups.items() if len(lines) >= FEWEST_LINES]
    enough.sort(key=lambda group: -len(group[1]))
    kinds = []
    for key, lines in enough[:_MOST_KINDS]:
        columns = [column for column in zip(*lines, strict=True) if _tells(column)]
        anchors = [_anchor([figure.before for figure in column]) for column in columns]
        if all(anchor is not None for anchor in anchors):
            known = [anchor for anchor in anchors if anchor is not None]
            first = [column[0] for column in columns]
            kinds.append(Kind(first, known, len(lines), frozenset(words[key]), training[key]))
    return kinds


def _counts_training(figures: Sequence[Figure]) -> bool:
    """Whether a line has a counter, and no word of an evaluation before it."""
    before = ""
    for figure in figures:
        before += figure.before
        if figure.word.quantity in ("step", "count", "samples"):
            return not _EVALUATES.search(before)
    return False


def _tells(column: Sequence[Figure]) -> bool:
    """Whether a figure is needed: those that never change tell nothing, except of epochs."""
    texts = {figure.text for figure in column}
    return len(texts) > 1 or column[0].word.quantity in ("epoch", "batch")


def _sample(data: bytes) -> Iterator[str]:
    parts = sample_parts(data, SAMPLE_BYTES // 3)
    most = _MOST_LINES // len(parts)
    for part in parts:
        for line in islice(rank_lines(part, only=_NAMED), most):
            if not BAR.search(line.text):
                yield line.text[:_MOST_CHARACTERS].decode("latin-1")


def figures_of(text: str) -> list[Figure]:
    """Take a line apart into its figures; dates are none."""
    figures: list[Figure] = []
    end, last = 0, ""
    at = _after_date(text)
    begin = at
    for match in islice(_FIGURE.finditer(text, at), _MOST_FIGURES):
        before = text[end or begin : match.start()]
        name, unit = _name(before, bool(figures)), match["unit"] or ""
        in_parentheses = before.strip() == "(" and bool(figures)
        word = word_of(name, unit)
        if (in_parentheses and word.quantity == "other") or (in_parentheses and not name):
            word, name = figures[-1].word, last
            if word.quantity in ("step", "count", "samples", "epoch"):
                word = Word("other")
        elif figures and before.strip() in ("/", "of"):
            word = Word("total")
            if figures[-1].word.quantity == "other" and not figures[-1].name:
                figures[-1] = figures[-1]._replace(word=Word("count"))
        last = name
        # A unit that is not known belongs to the figure before.
        before = _ATTACHED.sub("", before) if figures else before
        text_of = match["clock"] or (match["number"] + (match["si"] or ""))
        figures.append(
            Figure(word, _spelled(name), before, bool(match["clock"]), in_parentheses, text_of)
        )
        end = match.end()
    return figures


def _after_date(text: str) -> int:
    """Return where a line goes on after the last timestamp near its start."""
    dates = [*_DATE.finditer(text[:_DATE_BYTES]), *_OTHER_DATES.finditer(text[:_DATE_BYTES])]
    return max((match.end() for match in dates), default=0)


def _name(before: str, follows: bool) -> str:
    """Return the name in the text before a figure."""
    text = _ATTACHED.sub("", before) if follows else before
    return _NAME_STARTS.split(text.strip().rstrip(":= \"'[(#"))[-1]


def _spelled(name: str) -> str:
    return " ".join(re.findall(r"[a-z]+", name.lower()))


def _anchor(texts: Sequence[str]) -> str | None:
    """Return the common end of the texts before a figure, with single blanks; None without one."""
    ends = [_BLANKS.sub(" ", text)[::-1][:_MOST_BEFORE] for text in set(texts)]
    if len(ends) > 1 and not all(text.startswith(" ") for text in ends):
        ends = [text.lstrip(" ") for text in ends]
    first, last = min(ends), max(ends)
    alike = next((at for at, sign in enumerate(first) if last[at : at + 1] != sign), len(first))
    common = first[:alike][::-1]
    if len(ends) > 1 and common:
        # Not from the middle of a word.
        common = re.sub(r"^\w+", "", common) if _cuts_word(ends, len(common)) else common
    return common if common.strip() else None


def _cuts_word(ends: Sequence[str], length: int) -> bool:
    return any(
        len(text) > length and (text[length].isalnum() or text[length] == "_") for text in ends
    )


def _escaped(anchor: str) -> str:
    """Return an anchor as a regular expression, with blanks of any number."""
    pieces = [re.escape(piece) for piece in anchor.split()]
    start = r"(?:^|[^\w])" if anchor.strip()[:1].isalnum() or anchor.strip()[:1] == "_" else ""
    return start + r"\s+".join(pieces) + (r"\s*")


# -- tables ----------------------------------------------------------------------------------------


def table_in(data: bytes) -> Rows | None:
    """Read a table with a counter of steps and names in its first line (CSV); None for other text."""
    names = data[: data.find(b"\n")].decode("latin-1").strip().split(",")
    words = [word_of(name.strip('"')) for name in names]
    counts = any(word.quantity == "step" for word in words)
    if (
        not counts
        or len(names) < 2
        or not all(map(_is_name, names))
        or len(set(names)) < len(names)
    ):
        return None
    try:
        table = csv.read_csv(pa.py_buffer(data))
    except pa.ArrowInvalid:
        return None
    columns = [table.column(at) for at in range(table.num_columns)]
    if len(columns) != len(names) or table.num_rows < FEWEST_LINES:
        return None
    figures, values = [], []
    for word, name, column in zip(words, names, columns, strict=True):
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if numeric and word.quantity not in _NO_FIGURE and column.null_count < table.num_rows / 2:
            figures.append(Figure(word, _spelled(name), "", False, False, ""))
            values.append(np.array(arrow.numbers(column.cast(pa.float64()))))
    whole = np.logical_and.reduce([~np.isnan(column) for column in values] or [np.zeros(0, bool)])
    trains = any(word.quantity == "trains" for word in words)
    kind = Kind(figures, (), table.num_rows, frozenset(map(_spelled, names)), trains)
    return Rows(kind, values, _without_stamps(table.num_rows)).chosen(whole) if values else None


def _is_name(text: str) -> bool:
    return bool(re.fullmatch(r"\s*\"?[A-Za-z_][\w ./()%#@\-]{0,80}\"?\s*", text))


def _without_stamps(count: int) -> dict[str, Column]:
    """Return the stamps of lines without labels and timestamps."""
    never = np.zeros(count, bool)
    unit = np.ones(count, np.int64)
    stamps = {"timed": never, "ns": 0 * unit, "zone_known": never, "resolution_ns": unit}
    return {"rank": -unit, **stamps, "year_known": ~never}


# -- all lines -------------------------------------------------------------------------------------


def rows_of(data: bytes, kind: Kind) -> Rows | None:
    """Read the figures of all lines of a kind; None if there are too few."""
    expression = kind.expression
    values: list[list[Floats]] = [[] for _ in kind.figures]
    stamps: list[Mapping[str, Column]] = []
    for lines in line_blocks(data) if len(data) else ():
        if not len(lines.start):
            continue
        at, texts = _matching(lines, kind.literal, expression)
        if not len(at):
            continue
        for column, figure, array in zip(values, kind.figures, texts, strict=True):
            column.append(_numbers(array, is_clock=figure.is_clock))
        stamps.append(_stamps(lines, at))
    if sum(len(part["rank"]) for part in stamps) < FEWEST_LINES:
        return None
    joined = {name: np.concatenate([part[name] for part in stamps]) for name in stamps[0]}
    without = joined["timed"] & ~joined["year_known"]
    if without.any():
        joined["ns"][without] = in_assumed_years(joined["ns"][without], latest_ns())
    figures = [np.concatenate(column) for column in values]
    for figure, column in zip(kind.figures, figures, strict=True):
        if figure.word.quantity == "rank" and (joined["rank"] < 0).all():
            joined["rank"] = np.where(np.isnan(column), -1, column).astype(np.int64)
    return Rows(kind, figures, joined)


def _matching(lines: Lines, literal: str, expression: str) -> tuple[Ints, Sequence[pa.Array]]:
    """Return which lines match, and the texts of their figures."""
    array = _texts(lines)
    at = np.flatnonzero(_mask(pc.match_substring(array, literal)))
    if not len(at):
        return at, ()
    parts = pc.extract_regex(array.take(arrow.array(at)), expression)
    matched = _mask(parts.is_valid())
    return at[matched], parts.filter(arrow.array(matched)).flatten()


def _texts(lines: Lines) -> pa.Array:
    """Return the texts of lines; those of a block without labels are not copied."""
    start, end = lines.start, np.minimum(lines.end, lines.start + LONGEST_LINE)
    if len(start) > 1 and (start[1:] >= end[:-1]).all() and (end >= start).all():
        # Every second entry is the text between two lines.
        offsets = np.append(np.stack([start, end], axis=1).ravel(), end[-1]).astype(np.int32)
        every = pa.Array.from_buffers(
            pa.binary(),
            2 * len(start),
            [None, pa.py_buffer(offsets), pa.py_buffer(lines.block.text)],
        )
        return every.take(arrow.array(np.arange(0, 2 * len(start), 2)))
    return _binary(lines, start, end)


def _binary(lines: Lines, start: Ints, end: Ints) -> pa.Array:
    """Return copies of texts of a block."""
    text = lines.block.text
    pieces = [text[first:last] for first, last in zip(start.tolist(), end.tolist(), strict=True)]
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.binary(), len(pieces), buffers)


def _mask(column: pa.Array) -> Bools:
    """Return booleans as a mask; nulls are false."""
    return np.asarray(arrow.numbers(column) == 1)


def _numbers(texts: pa.Array, *, is_clock: bool) -> Floats:
    """Read numbers, with NaN for other texts; clocks become seconds."""
    strings = pc.cast(texts, pa.string(), safe=False)
    if is_clock:
        return _clocks(strings)
    plain = pc.replace_substring(pc.utf8_rtrim(strings, characters=",:"), ",", "")
    numbers = _floats(pc.utf8_rtrim(plain, characters="KMGT."))
    for letter, factor in _SI.items():
        has_letter = _mask(pc.ends_with(plain, letter))
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
    mask = _mask(valid)
    numbers = np.full(len(mask), np.nan)
    numbers[mask] = arrow.numbers(pc.cast(strings.filter(arrow.array(mask)), pa.float64()))
    return numbers


def _stamps(lines: Lines, at: Ints) -> dict[str, Column]:
    """Return the ranks of lines and the values of their timestamps."""
    block, rank = lines.block, lines.rank[at]
    before = text_starts(block, lines.time_start[at])
    columns = stamps_before(block, before, np.maximum(lines.time_end[at], before))
    if not columns["timed"].all():
        _put_dates(columns, lines, at)
    return {"rank": rank, **columns}


def _put_dates(columns: Mapping[str, Column], lines: Lines, at: Ints) -> None:
    """Read timestamps after other text, such as the name of a program."""
    rows = np.flatnonzero(~columns["timed"])
    start = lines.start[at[rows]]
    end = np.minimum(lines.end[at[rows]], start + _DATE_BYTES)
    heads = _binary(lines, start, end)
    for form in DATES:
        parts = pc.extract_regex(heads, rf"(?:^|[^\d]){form}")
        valid = _mask(parts.is_valid())
        if not valid.any():
            continue
        names = [field.name for field in parts.type]
        fields = dict(zip(names, parts.filter(arrow.array(valid)).flatten(), strict=True))
        ns, unit = _moments(fields)
        known = ns > 0
        chosen = rows[valid][known]
        columns["timed"][chosen], columns["ns"][chosen] = True, ns[known]
        columns["zone_known"][chosen], columns["resolution_ns"][chosen] = False, unit[known]
        columns["year_known"][chosen] = "year" in fields
        return


#: The year of timestamps without one, until it is assumed.
_LEAP_YEAR = 1972


def _moments(fields: Mapping[str, pa.Array]) -> tuple[Ints, Ints]:
    """Return nanoseconds since 1970, 0 for days that do not exist, and the units of timestamps."""
    numbers = {
        name: arrow.numbers(pc.cast(pc.cast(column, pa.string()), pa.int64()))
        for name, column in fields.items()
        if name != "fraction"
    }
    year = numbers.get("year", np.full(len(numbers["day"]), _LEAP_YEAR))
    month, day = numbers["month"], numbers["day"]
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (numbers["hour"] < 24)
    months = (12 * (year - 1970) + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64) + np.where(valid, day, 1) - 1
    seconds = 86400 * days + 3600 * numbers["hour"] + 60 * numbers["minute"] + numbers["second"]
    fraction = pc.cast(fields["fraction"], pa.string())
    digits = arrow.numbers(pc.utf8_length(fraction)).astype(np.int64)
    padded = pc.cast(pc.utf8_rpad(fraction, 9, "0"), pa.float64())
    nanos = arrow.numbers(padded).astype(np.int64)
    ns = np.where(valid, seconds * 10**9 + nanos, 0)
    return ns, np.asarray(10 ** (9 - digits), np.int64)
