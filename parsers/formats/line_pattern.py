"""Read lines that a user describes by a pattern:

    --read-as 'pattern:{time} epoch {epoch} step {step}'

A pattern describes the start of a line. Letters stand for themselves, blanks for any blanks, and

    {time}       a timestamp of any known form, or seconds since 1970
    {rank}       the rank, if no launcher has labelled the line
    {epoch}      the epoch
    {step}       the step, counted over the job or over the epoch
    {steps}      the number of steps of an epoch
    {seconds}    the duration of the step; of the epoch, without {step}
    {ms}         the same in milliseconds
    {data}       the seconds of it in which the step waited for its data
    {rate}       samples per second
    {mean_seconds}, {mean_data}    means over all steps of the epoch so far
    {}           anything

With ``{step}``, lines become a series of step times: as printed, else by rates and batch sizes, else
between timestamps. Without it, an epoch lasts ``{seconds}``, or else from its first line to that of the
next epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.stats import passes
from stallscope.arrays.types import Ints
from stallscope.errors import UnreadableError, UsageError
from stallscope.run import FROM_LABELS, Problem

from ..base import PATTERN, Parsed, Parser
from ..epochs_only import (
    Epochs,
    clock_facts,
    epochs_as_printed,
    epochs_between_lines,
    epochs_log,
    first_epoch,
    in_one_file,
    rounded_to,
)
from ..launcher_output import (
    Labels,
    LineField,
    LineForm,
    Lines,
    labels_of,
    line_blocks,
    stamps_before,
)
from ..lines.line_blocks import Column
from ..lines.timestamp_columns import joined_columns, moments_of, timestamp_at
from ..lines.timestamps import MOMENT
from ..rank_names import rank_in
from ..window_lines import HALF, by_rank, decimals_of
from ..work_lines import WorkLines
from .printed_steps import NO_RANK, Meaning, logs_of, with_year_note

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
# Numbers are printed as wide as the largest one: ``[  0/500]``.
_PADDING = {name: "" if name == "time" else " *" for name in FIELDS}
_FIELD = re.compile(r"\{(\w*)\}")
# Texts that lines contain as they are: a needle's ``\d`` is any digit.
_NO_NEEDLE = re.compile(r"\s+|\\d")
KNOWN_FROM = "lines of the given pattern"

_MEANING = Meaning(KNOWN_FROM, "step", is_certain=True)


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
        texts = [
            part for piece in (start, *(p.text for p in pieces)) for part in _NO_NEEDLE.split(piece)
        ]
        #: A text that every matching line contains, without blanks; empty if there is none.
        self.longest_text = max(texts, key=len).encode()
        self.form = LineForm(*_fields_and_end(start, pieces), [self.longest_text])

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
        return works.settled(joined) if joined is not None and "step" in joined else joined

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
        line, texts = self.form.matching(lines)
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
        fields |= moments_of(texts["time"])
        timed = fields["timed"]
        return line[timed], {name: column[timed] for name, column in fields.items()}


class LinePatternParser(Parser):
    """Reads lines of one pattern.

    Raises:
        UsageError: if the text is not a pattern.
    """

    name: ClassVar[str] = "pattern"
    title: ClassVar[str] = "lines of a pattern"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def __init__(self, pattern: str) -> None:
        self.pattern = Pattern(pattern)
        # ``logs_of`` searches the text for the number of ranks.
        self.reads_stated_ranks = "step" in self.pattern.names

    def recognises(self, file_name: str, head: bytes) -> bool:
        return self.pattern.occurs_in(head)

    def parse(self, path: str, data: bytes) -> Parsed:
        has_steps = "step" in self.pattern.names
        own_rank = NO_RANK if has_steps else rank_in(path)[0] or 0
        columns = self.pattern.all_columns(data, own_rank)
        if columns is None:
            raise UnreadableError(f"{path}: no line matches the pattern: {self.pattern.text!r}")
        if has_steps:
            return in_one_file(logs_of(path, data, columns, _MEANING), len(data))
        first, *others = epoch_logs(path, by_rank(columns), KNOWN_FROM)
        return in_one_file([with_year_note(first, columns), *others], len(data))


def epoch_logs(
    path: str,
    ranks: Mapping[int, Mapping[str, Column]],
    known_from: str,
    *,
    at_end: bool = False,
    first: int | None = None,
) -> list[Parsed]:
    """Make a log of each rank whose lines are about epochs.

    Args:
        path: the file.
        ranks: the fields of each rank's lines: ``epoch``, ``timed``, and ``seconds`` if printed.
        known_from: what the lines are, for the report.
        at_end: whether each epoch has one line, at its end.
        first: the printed number of the first epoch, 0 or 1; None to find it in the lines.
    """
    stamps = [columns["ns"][columns["timed"]] for columns in ranks.values()]
    zero = min((int(ns.min()) for ns in stamps if len(ns)), default=0)
    first = first_epoch(ranks.values()) if first is None else first
    logs: list[Parsed] = []
    for rank, columns in ranks.items():
        if "seconds" in columns:
            epochs = epochs_as_printed(columns, zero, first)
        else:
            epochs = epochs_between_lines(columns, zero, first, at_end=at_end)
        trainings = int(passes(epochs.number).max(initial=0)) + 1
        problems = [] if len(epochs.number) else [Problem(path, _NO_TIMES)]
        if trainings > 1:
            problems.append(Problem(path, _SEVERAL.format(trainings)))
        log = epochs_log(
            path,
            rank=rank,
            facts={**_facts(columns, epochs, zero, len(ranks)), "known_from": known_from},
            # Whether the job was complete is unknown.
            ended=False,
            tables=[epochs.table(path, rank)],
            problems=problems,
        )
        logs.append(log)
    return logs


_SEVERAL = (
    "the log has {:,} trainings, as epochs begin again with the first one: the mean epoch is that of "
    "the last one"
)
_NO_TIMES = "the lines have no times: they have no timestamps, or there is only one line"


def _facts(columns: Mapping[str, Column], epochs: Epochs, zero: int, ranks: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"precision": "no times"}
    if len(epochs.number):
        facts |= {"precision": f"epochs, to {rounded_to(epochs.half_ms)}", **epochs.facts}
    if ranks > 1:
        facts |= {"size": ranks, "size_from": FROM_LABELS}
    timed = np.flatnonzero(columns["timed"])
    if not len(timed):
        return facts | clock_facts(None, zero)
    at = timed[0]
    return facts | clock_facts(timestamp_at(columns, at), zero)


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
        raise UsageError(f"{PATTERN}{pattern}: {what}; there are {fields} and {{}} for anything")
    if not {"epoch", "step"} & set(names):
        raise UsageError(f"{PATTERN}{pattern}: a pattern needs {{epoch}} or {{step}}")
    pieces: list[_Piece] = []
    for name, text in zip(rest[0::2], rest[1::2], strict=True):
        # ``{}{step} images``: the text tells where the number is.
        skips = pieces[-1:] == [_ANYTHING] and name in _WHOLE_NUMBERS and bool(text.strip())
        if skips:
            pieces.pop()
        pieces.append(_Piece(name, text, skips or not name))
    if _ANYTHING in pieces[:-1]:
        raise UsageError(f"{PATTERN}{pattern}: text has to follow {{}}, to know where it ends")
    return start, pieces


def _fields_and_end(start: str, pieces: Sequence[_Piece]) -> tuple[list[LineField], str]:
    """Return the fields of lines, and the text after the last one as a regular expression."""
    fields = []
    before = _BEFORE_TEXT + _literal(start)
    for name, text, skips in pieces:
        if name:
            before += r"(?:.*?[^\w.])??" if skips else _PADDING[name]
            fields.append(LineField(before, name, FIELDS[name]))
            before = _literal(text)
        elif text:
            before += ".*?" + _literal(text)
    return fields, before


def _literal(text: str) -> str:
    return re.sub(r"(?:\\\s|\s)+", r"\\s+", re.escape(text))
