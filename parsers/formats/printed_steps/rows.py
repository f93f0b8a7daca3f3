"""Keep the figures of lines and of records as columns, with their ranks and timestamps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import joined

from ...base import MOST_RANKS
from ...launcher_output import (
    LONGEST_LINE,
    Lines,
    labels_of,
    line_blocks,
    stamps_before,
)
from ...lines.line_blocks import Column, sample_parts, texts_of
from ...lines.timestamp_columns import dates_in, joined_columns, without_timestamps
from ...lines.timestamps import DATES_BY_ORDER, date_order
from ...window_lines import timed_of_each
from ...work_lines import WORK, WorkLines
from .figures import (
    EVALUATES,
    FEWEST_LINES,
    NO_FIGURE,
    SAMPLE_BYTES,
    Figure,
    Kind,
    spelled,
)
from .vocabulary import (
    CLOCK,
    CLOCK_PARTS,
    DATE_BYTES,
    DATES,
    Word,
    word_in,
    word_of,
)

# Larger numbers are damage.
_LARGEST = 1e18
# The most columns and kinds of records. Those without some figures are a kind if they are this share.
_MOST_COLUMNS, _MOST_KINDS = 60, 8
_FEWEST_OF_ALL = 0.1
# The quantities without which records tell nothing come first.
_ORDER = {"step": 0, "epoch": 1, "stamp": 2, "time": 3, "rate": 4, "data": 5}
# The quantities that time steps.
TELL = ("time", "rate", "data", "stamp")
_OF_RAY_TUNE = frozenset({"training_iteration", "time_this_iter_s"})
RAY_TUNE = "its records count Ray Tune's reports, and not the steps between them"
# Forms of dates, and those whose numbers may have several orders.
_DATES = [re.compile(rf"(?:^|[^\d]){form}".encode()) for form in DATES]
_DATES_BY_ORDER = {
    order: re.compile(rf"(?:^|[^\d/.-]){form}".encode()) for order, form in DATES_BY_ORDER.items()
}
_OF_TRAINING = re.compile("(?i)epoch|train|grad|loss")
# Times since 1970 are in these years, 2001 to 2096.
_EARLIEST_S, LATEST_S = 1e9, 4e9
_COUNT = ("step", "epoch", "samples")
# The lines of a block that are searched for a date: dates in few lines tell nothing.
_SOME_LINES = 300
# Other lines have their dates at most so many bytes further on.
_FURTHER = 16
# Lines with a timestamp and no message: their length, and how they end.
_HEAD_BYTES, _HEAD_ENDS = 100, np.frombuffer(b" :-|>]", np.uint8)
_SI = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Rows:
    """The lines of a kind as columns."""

    kind: Kind
    #: For each figure its values, NaN where a text is no number; times of clocks are seconds.
    values: Sequence[Floats]
    #: The rank of each line (-1 without a label), the values of its timestamp, and the number of lines
    #: about other work up to it (``WorkLines``).
    stamps: Mapping[str, Column]
    #: Whether the days of their timestamps are certain.
    dated: bool = True

    def __len__(self) -> int:
        return len(self.stamps["rank"])

    def chosen(self, rows: Any) -> Rows:
        """Return some of the rows, by their numbers or a mask."""
        if rows.dtype == bool and rows.all():
            return self
        stamps = {name: column[rows] for name, column in self.stamps.items()}
        return Rows(self.kind, [column[rows] for column in self.values], stamps, self.dated)


def of_main_rank(rows: Rows) -> Rows:
    """Return the lines of the rank that has most of them."""
    ranks, counts = np.unique(rows.stamps["rank"], return_counts=True)
    return rows.chosen(rows.stamps["rank"] == ranks[counts.argmax()])


def without_copies(rows: Rows) -> Rows:
    """Keep one of lines with the same figures, with a timestamp if one has it.

    A second logger or rank prints the others.
    """
    if not len(rows):
        return rows
    same = np.logical_and.reduce(
        [(column[1:] == column[:-1]) | np.isnan(column[1:]) for column in rows.values]
    )
    return rows.chosen(timed_of_each(np.append(False, same), rows.stamps["timed"]))


def without_stamps(count: int) -> dict[str, Column]:
    """Return the stamps of lines without labels and timestamps."""
    return {"rank": np.full(count, -1), **without_timestamps(count)}


def since_1970(values: Floats) -> float | None:
    """Return the unit of times since 1970, in seconds; None for other times."""
    usual = float(np.median(values))
    return next(
        (unit for unit in (1.0, 1e-3, 1e-6, 1e-9) if _EARLIEST_S < usual * unit < LATEST_S), None
    )


# -- all lines -------------------------------------------------------------------------------------


def rows_of(
    data: bytes, kinds: Sequence[Kind], fewest: int = FEWEST_LINES, of_epochs: Collection[int] = ()
) -> list[Rows | None]:
    """Read the figures of all lines of some kinds in one pass; None if there are too few of a kind.

    Of kinds at the places ``of_epochs``, about whole epochs, the work between lines is not counted.
    """
    readers = [_RowsReader(kind, at not in of_epochs) for at, kind in enumerate(kinds)]
    sample = b"\n".join(sample_parts(data, SAMPLE_BYTES // 12)).decode("latin-1")
    order, is_certain = date_order(sample) or (None, True)
    form = None if order is None else _DATES_BY_ORDER[order]
    for lines in line_blocks(data) if len(data) else ():
        for reader in readers if len(lines.start) else ():
            reader.add(lines, form, is_certain=is_certain)
    return [reader.rows(data, fewest) for reader in readers]


class _RowsReader:
    """The figures of the lines of a kind so far."""

    def __init__(self, kind: Kind, counts_work: bool) -> None:
        self._kind, self._form = kind, kind.form
        self._works = WorkLines() if counts_work else None
        self._values: list[list[Floats]] = [[] for _ in kind.figures]
        self._stamps: list[Mapping[str, Column]] = []
        self._dated = True

    def add(self, lines: Lines, date: re.Pattern[bytes] | None, *, is_certain: bool) -> None:
        at, texts = self._form.matching(lines)
        counts = {} if self._works is None else self._works.counts(lines, at)
        if len(at):
            figures = zip(self._kind.figures, texts.values(), strict=True)
            for column, (figure, array) in zip(self._values, figures, strict=True):
                column.append(numbers_of(array, is_clock=figure.is_clock))
            ordered = without_timestamps(len(at))
            if date is not None:
                _put_dates(ordered, lines, at, [date])
            self._dated &= is_certain or not ordered["timed"].any()
            self._stamps.append({**stamps_of(lines, at, ordered), **counts})

    def rows(self, data: bytes, fewest: int) -> Rows | None:
        if sum(len(part["rank"]) for part in self._stamps) < max(fewest, 1):
            return None
        columns = [np.concatenate(pieces) for pieces in self._values]
        all_stamps = joined_stamps(self._stamps, self._kind, columns, data)
        if self._works is not None:
            all_stamps = self._works.settled(all_stamps)
        # Damaged lines have other texts in place of numbers.
        whole = np.logical_and.reduce([~np.isnan(numbers) for numbers in columns])
        enough = whole.sum() >= fewest
        return Rows(self._kind, columns, all_stamps, self._dated).chosen(whole) if enough else None


def joined_stamps(
    stamps: Sequence[Mapping[str, Column]],
    kind: Kind,
    values: Sequence[Floats],
    data: bytes = b"",
) -> dict[str, Column]:
    """Join the stamps of blocks: with the years of timestamps, and with ranks that are figures.

    The ranks of a launcher's labels replace those in lines, unless its numbers are those within a host.
    """
    columns = dict(joined_columns(stamps) or {})
    for figure, numbers in zip(kind.figures, values, strict=True):
        if figure.word.quantity == "rank":
            labels = labels_of(data)
            labelled = (columns["rank"] >= 0) & (labels is None or not labels.local)
            is_rank = (numbers >= 0) & (numbers < MOST_RANKS)
            in_line = np.where(is_rank, numbers, -1.0).astype(np.int64)
            columns["rank"] = np.where(labelled, columns["rank"], in_line)
    return columns


def line_texts(lines: Lines) -> pa.Array:
    """Return the texts of lines; of very long ones the start."""
    return texts_of(
        lines.block.text, lines.start, np.minimum(lines.end, lines.start + LONGEST_LINE)
    )


def mask_of(column: pa.Array) -> Bools:
    """Return booleans as a mask; nulls are false."""
    return np.asarray(arrow.numbers(column) == 1)


def numbers_of(texts: pa.Array, *, is_clock: bool) -> Floats:
    """Read numbers, with NaN for other texts; clocks become seconds."""
    strings = pc.cast(texts, pa.string(), safe=False)
    if is_clock:
        # Many lines have the same second.
        every = strings.dictionary_encode()
        return np.asarray(_clocks(every.dictionary)[arrow.numbers(every.indices)])
    try:
        numbers = np.asarray(arrow.numbers(pc.cast(strings, pa.float64())))
        return np.where(np.abs(numbers) <= _LARGEST, numbers, np.nan)
    except pa.ArrowInvalid:
        # Some have commas or letters.
        pass
    plain = pc.replace_substring(pc.utf8_rtrim(strings, characters=",:"), ",", "")
    numbers = _floats(pc.utf8_rtrim(plain, characters="kKMGT."))
    if mask_of(pc.match_substring_regex(plain, "[kKMGT]$")).any():
        for letter, factor in _SI.items():
            numbers = np.where(mask_of(pc.ends_with(plain, letter)), numbers * factor, numbers)
    return numbers


def _clocks(strings: pa.Array) -> Floats:
    parts = pc.extract_regex(strings, CLOCK_PARTS)
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


def stamps_of(
    lines: Lines, at: Ints, ordered: Mapping[str, Column] | None = None
) -> dict[str, Column]:
    """Return the ranks of lines and the values of their timestamps.

    Args:
        lines: lines of a block.
        at: the numbers of those to read.
        ordered: timestamps of the order that the log's dates have, which replace others.
    """
    columns = stamps_before(lines, at)
    if ordered is not None:
        replaced = ordered["timed"]
        for name, column in ordered.items():
            columns[name][replaced] = column[replaced]
    if not columns["timed"].all():
        _put_dates(columns, lines, at, _DATES)
    if not columns["timed"].all():
        _put_heads(columns, lines, at)
    return {"rank": lines.rank[at], **columns}


def _put_dates(
    columns: Mapping[str, Column], lines: Lines, at: Ints, forms: Sequence[re.Pattern[bytes]]
) -> None:
    """Read timestamps after other text, such as the name of a program."""
    rows = np.flatnonzero(~columns["timed"])
    start = lines.start[at[rows]]
    end = np.minimum(lines.end[at[rows]], start + DATE_BYTES)
    some = slice(None, None, len(rows) // _SOME_LINES + 1)
    heads = texts_of(lines.block.digits_alike, start[some], end[some]).unique().to_pylist()
    for form in forms:
        ends = [match.end() for head in heads if (match := form.search(head)) is not None]
        if ends:
            # The rest of lines differs more.
            end = np.minimum(end, start + max(ends) + _FURTHER)
            dates = dates_in(lines.block, start, end, form)
            timed = dates["timed"]
            for name, column in dates.items():
                columns[name][rows[timed]] = column[timed]
            return


def _put_heads(columns: Mapping[str, Column], lines: Lines, at: Ints) -> None:
    """Read timestamps of lines before that have no message: some messages begin with a line's end."""
    rows = np.flatnonzero(~columns["timed"] & (at > 0))
    before = at[rows] - 1
    start, end = lines.start[before], lines.end[before]
    is_head = (end > start) & (end - start < _HEAD_BYTES)
    is_head &= np.isin(lines.block.bytes[end - 1], _HEAD_ENDS)
    is_head &= lines.rank[before] == lines.rank[at[rows]]
    if is_head.any():
        for name, column in stamps_before(lines, before[is_head]).items():
            columns[name][rows[is_head]] = column


# -- records ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Records:
    """The records of a file as columns, in their order."""

    #: Figures by name, NaN where a record has none.
    figures: Mapping[str, Floats]
    #: The names of those that are written as hours, minutes and seconds.
    clocks: frozenset[str]
    #: The rank of each record (-1 without a label) and the values of its timestamp.
    stamps: Mapping[str, Column]
    #: All names.
    names: frozenset[str]
    #: Whether nothing else is in the file.
    alone: bool
    #: Why they are not read, if that is certain.
    reason: str = ""

    def __len__(self) -> int:
        return len(self.stamps["rank"])

    def kinds(self) -> list[Rows]:
        """Return the records with the same figures, those with most of them first."""
        if self.reason or self.names >= _OF_RAY_TUNE:
            return []
        words = {name: self._word(name) for name in self.figures}
        names = [
            name
            for name, word in words.items()
            if word.quantity not in NO_FIGURE and not EVALUATES.search(name)
        ]
        names.sort(key=lambda name: _ORDER.get(words[name].quantity, len(_ORDER)))
        names = names[:_MOST_COLUMNS]
        if not names:
            return []
        known = np.stack([~np.isnan(self.figures[name]) for name in names], axis=1)
        codes = known @ (1 << np.arange(len(names), dtype=np.int64))
        groups = []
        for code, _ in Counter(codes.tolist()).most_common(_MOST_KINDS):
            if not code:
                continue
            chosen = (codes & code) == code
            of_kind = [name for at, name in enumerate(names) if code >> at & 1]
            if chosen.sum() >= max(FEWEST_LINES, _FEWEST_OF_ALL * known.any(axis=1).sum()):
                groups.append((of_kind, chosen))
        groups.sort(key=lambda group: -sum(words[name].quantity in TELL for name in group[0]))
        return [self._kind(of_kind, words, chosen) for of_kind, chosen in groups]

    def _word(self, name: str) -> Word:
        """Return the meaning of a figure; an ``epoch`` may be the time since 1970."""
        word = word_in(name, self.names)
        values = self.figures[name][~np.isnan(self.figures[name])][:1000]
        unit_s = since_1970(values) if word.quantity == "epoch" and len(values) else None
        return word if unit_s is None else Word("stamp", unit_s)

    def _kind(self, names: Sequence[str], words: Mapping[str, Word], chosen: Bools) -> Rows:
        figures = [
            Figure(words[name], spelled(name), "", "", name in self.clocks, False, "")
            for name in names
        ]
        trains = any(word_of(name).quantity == "trains" for name in self.names)
        kind = Kind(figures, (), "", frozenset(map(spelled, self.names)), trains)
        values = [self.figures[name][chosen] for name in names]
        stamps = {
            name: column[chosen] for name, column in {**self.stamps, **self._other_work()}.items()
        }
        return Rows(kind, values, joined_stamps([stamps], kind, values))

    def _other_work(self) -> dict[str, Ints]:
        """Count the records that have a figure of other work, up to each record."""
        counts = {}
        for work, expression in WORK.items():
            named = np.zeros(len(self), bool)
            for name, values in self.figures.items():
                # A figure that most records have belongs to steps.
                missing = np.isnan(values)
                if missing.mean() > 1 / 2 and re.search(expression, name):
                    named |= ~missing
            counts[work] = np.cumsum(named)
        return counts

    @property
    def counts(self) -> bool:
        """Whether they have a counter."""
        return any(
            word_of(name).quantity in _COUNT and (~np.isnan(values)).sum() >= FEWEST_LINES
            for name, values in self.figures.items()
        )

    @property
    def trains(self) -> bool:
        """Whether they have figures of a training: other programs count and time, too."""
        return any(
            word_of(name).quantity in ("trains", "rate") or _OF_TRAINING.search(name)
            for name in self.names
        )

    def lacks(self) -> str:
        """Say why they are not read: what they have and lack; empty if they have counters and times."""
        if self.reason or self.names >= _OF_RAY_TUNE:
            return self.reason or RAY_TUNE
        quantities = {name: word_of(name).quantity for name in self.figures}
        counts, times, rates = (
            [name for name, quantity in quantities.items() if quantity in kinds]
            for kinds in (_COUNT, ("time", "data", "stamp"), ("rate",))
        )
        if not counts:
            rest = f" beside {joined([*times, *rates])}" if times or rates else ""
            return f"no column of its records is known to count steps or epochs{rest}"
        if times or self.stamps["timed"].any():
            return ""
        if rates:
            having = f" and have rates ({joined(rates)}), and neither times nor timestamps"
        else:
            having = ", and have neither times, rates nor timestamps"
        return f"its records count {joined(counts)}{having}"


def figures_of(column: pa.Array) -> tuple[bool, Floats]:
    """Return whether a column has hours and minutes, and its numbers, NaN for other contents."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = arrow.numbers(arrow.filled(column.cast(pa.float64(), safe=False), np.nan))
        return False, np.where(np.isfinite(values), values, np.nan)
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False, np.full(len(column), np.nan)
    texts = pc.utf8_trim_whitespace(arrow.without_nulls(column))
    is_clock = bool(np.mean(mask_of(pc.match_substring_regex(texts, rf"^{CLOCK}$"))) > 0.5)
    return is_clock, numbers_of(texts, is_clock=is_clock)
