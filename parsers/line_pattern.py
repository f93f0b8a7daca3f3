"""Lines that a user describes by a pattern:

    --read-as 'pattern:{time} epoch {epoch} step {step}'

A pattern describes the start of a line. Letters stand for themselves, blanks for any blanks, and

    {time}       a timestamp of any known form, or seconds since 1970
    {rank}       the rank, if no launcher has labelled the line
    {epoch}      the epoch that the line is of
    {step}       the step, counted over the job or over the epoch
    {seconds}    how long the epoch took, or the step where there is no {epoch}
    {ms}         the same in milliseconds
    {}           anything

Without a duration an epoch lasts from its first line to the first line of the next one, and no
timestamp is more precise than it looks: whole seconds give a step's time only over many steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stallscope.errors import UnreadableError, UsageError
from stallscope.run import Problem

from .base import Parsed, Parser
from .blocks import Block, Bools, Ints
from .epochs_only import clock_facts, epochs_log, epochs_table, in_one_file, rank_in, rounded_to
from .launcher_output import LONGEST_LINE, LONGEST_PREFIX, Lines, line_blocks
from .pattern_columns import (
    DURATIONS,
    MOST_DIGITS,
    MOST_FRACTION_DIGITS,
    MOST_PADDING,
    Column,
    Part,
    Walk,
    having,
)
from .timestamp_columns import in_assumed_years, line_starts
from .timestamps import MOMENT, Timestamp, latest_ns, read_moment, read_timestamp

#: The start of a pattern's name.
PREFIX = "pattern:"
KNOWN_FROM = "lines of the given pattern"

_FIELDS = {
    "time": MOMENT,
    **{name: rf"\d{{1,{most}}}" for name, most in MOST_DIGITS.items()},
}
for _duration in DURATIONS:
    _FIELDS[_duration] += rf"(?:\.\d{{1,{MOST_FRACTION_DIGITS}}})?"
_PADDING = {name: "" if name == "time" else f" {{0,{MOST_PADDING}}}" for name in _FIELDS}
_FIELD = re.compile(r"\{(\w*)\}")
# Later times after the first epoch are damage.
_LATEST_NS = 2**62
# Columns with whether there is a ``Timestamp``, and its value.
_TIMESTAMP = ("timed", "ns", "zone_known", "resolution_ns", "year_known")


@dataclass(frozen=True)
class _Values:
    """The values of matching lines, one entry per line; None for fields that the pattern does not
    have.
    """

    timed: Bools
    #: As a ``Timestamp`` has them.
    ns: Ints
    zone_known: Bools
    resolution_ns: Ints
    year_known: Bools
    epoch: Ints | None = None
    step: Ints | None = None
    seconds: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.ns)

    @property
    def first_timestamp(self) -> Timestamp | None:
        if not self.timed.any():
            return None
        at = int(self.timed.argmax())
        known = bool(self.zone_known[at]), int(self.resolution_ns[at]), bool(self.year_known[at])
        return Timestamp(int(self.ns[at]), *known)


@dataclass
class _RankTimes:
    """The times in a rank's lines."""

    #: By columns as those of ``Epoch``: every line may have one.
    number: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    begin: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    end: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    #: Half of what they are rounded to, in milliseconds.
    half_ms: float = 0.0
    step_ms: float | None = None
    step_half_ms: float = 0.0


class LinePatternParser(Parser):
    """Reads lines of one pattern.

    Raises:
        UsageError: if it is none.
    """

    name: ClassVar[str] = "pattern"
    title: ClassVar[str] = "lines of a pattern"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def __init__(self, pattern: str) -> None:
        texts, names = _split_pattern(pattern)
        self._line = _compiled(texts, names)
        self._parts = _parts(texts, names)
        self._is_timed = "time" in names
        self._pattern = pattern

    def recognises(self, file_name: str, head: bytes) -> bool:
        return any(len(found["timed"]) for found in self.columns(head, 0))

    def parse(self, path: str, data: bytes) -> Parsed:
        columns = self.all_columns(path, data)
        if not len(columns["timed"]):
            raise UnreadableError(f"{path}: no line matches the pattern: {self._pattern!r}")
        return in_one_file(_logs(path, columns), len(data))

    def all_columns(self, path: str, data: bytes) -> Mapping[str, Column]:
        """Return the values of all matching lines, as in ``columns``, in assumed years."""
        found = [*self.columns(data, rank_in(path)[0] or 0)]
        if not found:
            return {"timed": np.zeros(0, bool)}
        columns = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        _assume_years(columns)
        return columns

    def columns(self, data: bytes, of_the_file: int = 0) -> Iterator[Mapping[str, Column]]:
        """Return the values of matching lines, block by block.

        Args:
            of_the_file: the rank of unlabelled lines.

        Returns:
            columns of equal length: ``rank``, what the pattern has, and ``timed``; where a line is
            that, also what a ``Timestamp`` has.
        """
        for lines in line_blocks(data):
            line, fields = self._lines(lines)
            if "rank" not in fields:
                rank = lines.rank[line]
                fields["rank"] = np.where(rank < 0, of_the_file, rank)
            if self._is_timed:
                fields["timed"] = np.ones(len(line), bool)
            else:
                fields |= _stamps(lines.block, lines.time_start[line], lines.time_end[line])
            yield fields

    def _lines(self, lines: Lines) -> tuple[Ints, dict[str, Column]]:
        """Return the matching lines, in order, and their values."""
        block, starts = lines.block, lines.start
        line = having(block, self._parts)
        line = line[line < len(starts)]
        ends = np.minimum(lines.end[line], starts[line] + LONGEST_LINE)
        known, fields = Walk(block, line, starts[line], ends).along(self._parts)
        rest = ~np.isin(line, known, assume_unique=True)
        others: list[int] = []
        rows: list[Mapping[str, float]] = []
        for one, start, end in zip(
            line[rest].tolist(), starts[line[rest]].tolist(), ends[rest].tolist(), strict=True
        ):
            row = self.one(block.bytes[start:end].tobytes())
            if row is not None:
                others.append(one)
                rows.append(row)
        if not rows:
            return known, fields
        order = np.argsort(np.append(known, others), kind="stable")
        return np.append(known, others)[order], {
            name: np.append(column, np.array([row[name] for row in rows], column.dtype))[order]
            for name, column in fields.items()
        }

    def one(self, text: bytes) -> Mapping[str, float] | None:
        """Return the values of one line, None if it does not match: the reference for other ways."""
        found = self._line.match(text)
        if found is None:
            return None
        parts = found.groupdict()
        row: dict[str, float] = {
            name: int(part)
            for name, part in parts.items()
            if name != "time" and name not in DURATIONS
        }
        for name in DURATIONS.keys() & parts.keys():
            row["seconds"] = float(parts[name]) / DURATIONS[name]
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


def _assume_years(columns: Mapping[str, Column]) -> None:
    """Move timestamps without a year into the latest years in which they are not in the future."""
    without = ~columns["year_known"]
    if without.any():
        columns["ns"][without] = in_assumed_years(columns["ns"][without], latest_ns())


def _stamps(block: Block, start: Ints, end: Ints) -> dict[str, Column]:
    """Read the timestamps of lines when the pattern has none.

    Args:
        start: where what may hold their timestamps begins.
        end: where that ends.
    """
    found = line_starts(block, start)
    known = (found.there, found.ns, found.zone_known, found.resolution_ns, found.year_known)
    columns = dict(zip(_TIMESTAMP, known, strict=True))
    unclear = np.flatnonzero(found.unclear)
    if len(unclear):
        end = np.minimum(end, start + LONGEST_PREFIX)
        places = zip(start[unclear].tolist(), end[unclear].tolist(), strict=True)
        texts = [block.bytes[first:last].tobytes() for first, last in places]
        _put(columns, unclear, [read_timestamp(text) for text in texts])
    return columns


def _put(columns: Mapping[str, Column], at: Ints, stamps: Sequence[Timestamp | None]) -> None:
    rows = [
        (False, 0, False, 1, True)
        if one is None
        else (True, one.ns, one.zone_known, one.resolution_ns, one.year_known)
        for one in stamps
    ]
    for column, values in zip(columns.values(), zip(*rows, strict=True), strict=True):
        column[at] = values


def _by_rank(columns: Mapping[str, Column]) -> dict[int, _Values]:
    order = np.argsort(columns["rank"], kind="stable")
    ranks, firsts = np.unique(columns["rank"][order], return_index=True)
    pieces = np.split(order, firsts[1:])
    return {
        rank: _Values(**{name: all_[own] for name, all_ in columns.items() if name != "rank"})
        for rank, own in zip(ranks.tolist(), pieces, strict=True)
    }


def _split_pattern(pattern: str) -> tuple[list[str], list[str]]:
    """Split a pattern into its texts and the names of the fields between them, empty for anything."""
    *parts, last = _FIELD.split(pattern)
    texts, between = [*parts[0::2], last], parts[1::2]
    names = [name for name in between if name]
    unknown = [name for name in names if name not in _FIELDS]
    kinds = ["seconds" if name in DURATIONS else name for name in names]
    if unknown or len(set(kinds)) < len(kinds):
        what = f"{{{unknown[0]}}} is not a field" if unknown else "a field occurs twice"
        known = ", ".join(f"{{{name}}}" for name in _FIELDS)
        raise UsageError(f"{PREFIX}{pattern}: {what}; there are {known} and {{}} for anything")
    if not {"epoch", "step"} & set(names):
        raise UsageError(f"{PREFIX}{pattern}: a pattern needs {{epoch}} or {{step}}")
    for name, text in zip(between, texts[1:], strict=True):
        if not name and not text and (between[-1] or between.count(name) > 1):
            raise UsageError(f"{PREFIX}{pattern}: text has to follow {{}}, to know where it ends")
    return texts, between


def _compiled(texts: Sequence[str], names: Sequence[str]) -> re.Pattern[bytes]:
    made = _literal(texts[0])
    for name, text in zip(names, texts[1:], strict=True):
        if name:
            made += _PADDING[name] + f"(?P<{name}>{_FIELDS[name]})" + _literal(text)
        elif text:
            # What was skipped is not tried again: any line takes one pass.
            made += f"(?>.*?{_literal(text)})"
    return re.compile(made.encode(), re.DOTALL)


def _literal(text: str) -> str:
    return re.sub(r"(?:\\\s|\s)+", r"\\s+", re.escape(text))


def _parts(texts: Sequence[str], names: Sequence[str]) -> list[Part]:
    """Convert a pattern to the parts that ``Walk`` follows."""
    parts = _parts_of(texts[0])
    for name, text in zip(names, texts[1:], strict=True):
        parts_of_text = _parts_of(text)
        if name:
            parts.append(Part(name))
        elif text:
            blank, *rest = parts_of_text
            if blank.kind == "text":
                parts_of_text = [Part("skip", blank.text), *rest]
            elif rest:
                parts_of_text = [Part("skip", rest[0].text, blank_before=True), *rest[1:]]
            else:
                parts_of_text = [Part("skip"), blank]
        parts += parts_of_text
    return parts


def _parts_of(text: str) -> list[Part]:
    return [
        Part("blanks") if piece.isspace() else Part("text", piece.encode())
        for piece in re.split(r"(\s+)", text)
        if piece
    ]


def _logs(path: str, columns: Mapping[str, Column]) -> list[Parsed]:
    values = _by_rank(columns)
    stamps = [own.ns[own.timed] for own in values.values()]
    zero = min((int(ns.min()) for ns in stamps if len(ns)), default=0)
    firsts = {int(own.epoch.min()) for own in values.values() if own.epoch is not None}
    base = 1 if firsts and min(firsts) == 1 else 0
    logs: list[Parsed] = []
    for rank, own in values.items():
        times = _times(own, zero, base)
        if times.end.max(initial=0) > _LATEST_NS:
            raise UnreadableError(
                f"{path}: epochs that take a century: {{seconds}} in the pattern matches something else"
            )
        problems = [] if logs or columns["year_known"].all() else [Problem(path, _year(zero))]
        if not len(times.number) and times.step_ms is None:
            problems.append(Problem(path, _NO_TIMES))
        log = epochs_log(
            path,
            rank=rank,
            facts=_facts(own, times, zero, len(values)),
            epochs=(),
            # Whether the job was complete is unknown.
            ended=False,
            problems=problems,
        )
        epochs = epochs_table(rank, times.number, times.begin, times.end)
        logs.append(replace(log, intervals=epochs))
    return logs


def _year(ns: int) -> str:
    year = datetime.fromtimestamp(ns // 10**9, UTC).year
    return f"the timestamps have no year: the first is assumed to be of {year}"


_NO_TIMES = "the pattern's lines have no times: they have no timestamps, or there is only one line"


def _times(values: _Values, zero: int, base: int) -> _RankTimes:
    times = _RankTimes()
    if values.epoch is not None and values.seconds is not None:
        _epochs_as_printed(times, values, values.epoch - base, values.seconds, zero)
    elif values.epoch is not None:
        _epochs_between_lines(times, values, values.epoch - base, zero)
    if values.seconds is not None and values.epoch is None:
        times.step_ms = 1e3 * sum(values.seconds.tolist()) / len(values)
        times.step_half_ms = _half_ms(values.seconds)
    elif values.step is not None:
        _steps_between_lines(times, values, values.step)
    return times


def _epochs_as_printed(
    times: _RankTimes, values: _Values, epoch: Ints, seconds: npt.NDArray[np.float64], zero: int
) -> None:
    took = np.rint(seconds * 1e9).astype(np.int64)
    # Without a timestamp of its end, it follows the one before it.
    since = np.cumsum(took)
    timed_at = np.maximum.accumulate(np.where(values.timed, np.arange(len(values)), -1))
    end = since.copy()
    known = timed_at >= 0
    at = timed_at[known]
    end[known] += values.ns[at] - zero - since[at]
    times.number, times.begin, times.end = epoch, end - took, end
    times.half_ms = _half_ms(seconds)


def _half_ms(seconds: npt.NDArray[np.float64]) -> float:
    """Return half of the last printed digit, at best of a millisecond."""
    for half_ms in (500.0, 50.0, 5.0):
        digits = seconds * (500.0 / half_ms)
        if np.all(np.abs(digits - np.rint(digits)) < 1e-6 * half_ms):
            return half_ms
    return 0.5


def _epochs_between_lines(times: _RankTimes, values: _Values, epoch: Ints, zero: int) -> None:
    """Measure epochs from their first line to the next one's; the last epoch's end is unknown."""
    timed = np.flatnonzero(values.timed)
    number = epoch[timed]
    first = timed[np.flatnonzero(np.append(True, number[1:] != number[:-1])[: len(number)])]
    begin, end = first[:-1], first[1:]
    fits = (epoch[end] > epoch[begin]) & (values.ns[end] >= values.ns[begin])
    begin, end = begin[fits], end[fits]
    since = values.ns - zero
    times.number, times.begin, times.end = epoch[begin], since[begin], since[end]
    # Both timestamps are rounded down: the difference is wrong by less than one of them either way.
    rounded = values.resolution_ns[np.append(begin, end)]
    times.half_ms = int(rounded.max(initial=0)) / 1e6


def _steps_between_lines(times: _RankTimes, values: _Values, step: Ints) -> None:
    step, ns = step[values.timed], values.ns[values.timed]
    more, later = step[1:] > step[:-1], ns[1:] >= ns[:-1]
    both = more & later
    steps = int((step[1:] - step[:-1])[both].sum())
    if not steps:
        return
    took = (ns[1:] - ns[:-1])[both]
    # A clock that was set time and again may have gone through more centuries than an integer holds.
    time = int((took // 10**9).sum()) * 10**9 + int((took % 10**9).sum())
    # Each restart of steps, and each clock that was set, adds two rounded timestamps.
    pieces = 1 + int(np.count_nonzero(~both))
    wrong = int(values.resolution_ns[values.timed].max()) * pieces
    times.step_ms, times.step_half_ms = time / steps / 1e6, wrong / steps / 1e6


def _facts(values: _Values, times: _RankTimes, zero: int, ranks: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"known_from": KNOWN_FROM, "precision": _precision(times)}
    if len(times.number):
        facts |= {
            "epoch_precision_ms": times.half_ms,
            "first_epoch": int(times.number.min()),
        }
    if times.step_ms is not None:
        facts |= {"step_ms": times.step_ms, "step_precision_ms": times.step_half_ms}
    if ranks > 1:
        facts["size"] = ranks
    return facts | clock_facts(values.first_timestamp, zero)


def _precision(times: _RankTimes) -> str:
    if len(times.number):
        return f"epochs, to {rounded_to(times.half_ms)}"
    if times.step_ms is not None:
        return f"a mean over steps, to {rounded_to(times.step_half_ms)}"
    return "nothing of times"
