"""Propose and write a pattern for the output of a program, with the results of reading with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.errors import UnreadableError, UsageError

from ...base import Parsed
from ...formats.line_pattern import LinePatternParser
from ...pattern import PREFIX, Pattern
from ...pattern_columns import FLOATS, Column
from ...rank_names import rank_in
from ..inspected import Proposal, TimeSpan, iso
from .choosing import Choice, choices
from .line_groups import (
    SAMPLE_BYTES,
    FieldPlace,
    SampleLine,
    named_lines,
    sample_lines,
    texts_around,
)
from .line_kinds import FEWEST_LINES, NO_TIMES

# The most wrong lines of those for which a pattern is made, and the most other lines, as shares.
_MOST_WRONG = 0.05
_MOST_OTHERS = 0.1
# The most kinds of lines to try.
_MOST_CHOICES = 5
# The most bytes to look at for all files of a place, and the most patterns to try again.
_MOST_BYTES = 16 << 20
_MOST_PATTERNS = 4

# Text up to this length is kept whole.
_SHORT = 24
_FIELD = re.compile(r"\{\w*\}")
_DIGITS = re.compile(r"\d+")
# The last word of a text with its punctuation, and the one before if it is in brackets.
_LAST_WORD = re.compile(r"(?:\S+ (?=\())?[^\s,;|]*\w\W*$")
# A number right before a field, without a name for that.
_LAST_NUMBER = re.compile(r"(?<= )[-+.:\w]{0,40}\d[%)\]]? $")
_FIRST_SIGNS = re.compile(r"[^\w{}]{0,3}")
# The unit or sign after the last field, which excludes longer numbers and similar lines.
_UNIT = re.compile(r"[^\w\s.{}]|(?:ms|s)(?!\w)")
_SIGN = re.compile(rf" ?(?:{_UNIT.pattern})")


@dataclass(frozen=True)
class NoProposal:
    """The reason why there is no pattern, as a part of a sentence."""

    reason: str


class _Pattern(NamedTuple):
    """A pattern for ``--read-as``."""

    read_as: str
    #: The share of the lines for which it was made that it reads.
    share: float
    notes: tuple[str, ...]


class Proposer:
    """Proposes patterns for the files of one place, the same one for files of the same kind."""

    def __init__(self) -> None:
        self._patterns: list[_Pattern] = []
        self._bytes_left = _MOST_BYTES

    def propose(self, name: str, data: bytes) -> Proposal | NoProposal:
        """Propose a pattern for a file that no parser knows.

        Args:
            name: the file's name, which may contain a rank.
            data: its bytes, in UTF-8.
        """
        for pattern in self._patterns[:_MOST_PATTERNS]:
            proposal = _what_is_read(pattern, name, data)
            if proposal is not None and proposal.lines >= FEWEST_LINES:
                return proposal
        if self._bytes_left <= 0:
            return NoProposal(_TOO_MANY)
        self._bytes_left -= min(len(data), SAMPLE_BYTES)
        return self._new(name, data)

    def _new(self, name: str, data: bytes) -> Proposal | NoProposal:
        proposal = self._of(sample_lines(data), name, data)
        if isinstance(proposal, NoProposal) and len(data) > SAMPLE_BYTES:
            # A short training may be anywhere in a long output.
            return self._of(named_lines(data), name, data)
        return proposal

    def _of(self, lines: Sequence[SampleLine], name: str, data: bytes) -> Proposal | NoProposal:
        candidates, reason = choices(lines)
        for choice in candidates[:_MOST_CHOICES]:
            pattern = _pattern_for(choice, lines)
            if pattern is None:
                reason = _NOT_APART
                continue
            proposal = _what_is_read(pattern, name, data)
            if proposal is not None:
                self._patterns.append(pattern)
                return proposal
            reason = NO_TIMES
        return NoProposal(reason)


_NOT_APART = "no text distinguishes its lines with steps or epochs from other lines"


_TOO_MANY = "many other files were tried first; inspect it alone"


def _what_is_read(pattern: _Pattern, name: str, data: bytes) -> Proposal | None:
    """Return the proposal of a pattern for a file; None if the file has no times with it."""
    parser = LinePatternParser(pattern.read_as.removeprefix(PREFIX))
    columns = parser.pattern.all_columns(data, rank_in(name)[0] or 0)
    if columns is None:
        return None
    try:
        parsed = parser.parse(name, data)
    except UnreadableError:
        return None
    logs = [parsed, *parsed.more]
    step_ms = _mean([log.log.facts.get("step_ms") for log in logs])
    epochs = [took for log in logs for took in _took(log)]
    if step_ms is None and not epochs:
        return None
    return Proposal(
        read_as=pattern.read_as,
        lines=len(columns["timed"]),
        share=pattern.share,
        ranks=tuple(np.unique(columns["rank"]).tolist()),
        epochs=_extremes(columns.get("epoch")),
        steps=_extremes(columns.get("step")),
        step_ms=step_ms,
        step_precision_ms=_mean([log.log.facts.get("step_precision_ms") for log in logs]),
        epoch_s=_mean(epochs),
        span=_span(columns),
        notes=(
            *pattern.notes,
            *dict.fromkeys(problem.what for log in logs for problem in log.problems),
        ),
    )


def _took(log: Parsed) -> list[float]:
    """Return the durations of a log's epochs, seconds."""
    epochs = log.intervals.filter(arrow.equal(log.intervals["kind"], "epoch"))
    took = pc.subtract(epochs["end"], epochs["begin"])
    return [ns / 1e9 for ns in took.to_pylist()]


def _pattern_for(choice: Choice, lines: Sequence[SampleLine]) -> _Pattern | None:
    """Return the pattern for a choice that reads the fewest other lines of the sample."""
    chosen = set(choice.at)
    best, fewest = None, _MOST_OTHERS * len(chosen)
    for text in patterns_of(choice):
        try:
            pattern = LinePatternParser(text).pattern
        except UsageError:
            continue
        share = _share(pattern, choice)
        others = sum(
            at not in chosen and pattern.values_in(line.text.encode()) is not None
            for at, line in enumerate(lines)
        )
        if share >= 1 - _MOST_WRONG and (others < fewest if best else others <= fewest):
            best, fewest = _Pattern(f"{PREFIX}{text}", share, choice.notes), others
    return best


def _share(pattern: Pattern, choice: Choice) -> float:
    """Return the share of a choice's lines that a pattern reads as chosen."""
    right = sum(
        _is_right(pattern.values_in(line.text.encode()), line.text, choice.names, places)
        for line, places in zip(choice.lines, choice.places, strict=True)
    )
    return right / len(choice.lines)


def _is_right(
    row: Mapping[str, float] | None, text: str, names: Sequence[str], places: Sequence[FieldPlace]
) -> bool:
    if row is None:
        return False
    for name, place in zip(names, places, strict=True):
        written = text[place.start : place.end]
        if name in FLOATS:
            if row[name] != float(written):
                return False
        elif name != "time" and row[name] != int(written):
            return False
    return True


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _extremes(column: Column | None) -> tuple[int, int] | None:
    return None if column is None else (int(column.min()), int(column.max()))


def _span(columns: Mapping[str, Column]) -> TimeSpan | None:
    timed = columns["timed"]
    if not timed.any():
        return None
    ns, known = columns["ns"][timed], bool(columns["zone_known"][timed].all())
    ending = "Z" if known else ""
    return TimeSpan(iso(int(ns.min())) + ending, iso(int(ns.max())) + ending, known)


# -- writing ---------------------------------------------------------------------------------------
#
# Write patterns of the places of fields, with little text that still distinguishes the lines.


def patterns_of(choice: Choice) -> Iterator[str]:
    """Yield patterns for the lines of a choice, those with little text first."""
    gaps = _gaps(choice)
    for is_long in (False, True):
        written = "".join(
            _text_between(_aligned([line[at] for line in gaps], name), at == 0, is_long=is_long)
            + f"{{{name}}}"
            for at, name in enumerate(choice.names)
        )
        yield written + _end([line[-1] for line in gaps], _SIGN if is_long else _UNIT)


def _gaps(choice: Choice) -> list[list[str]]:
    """Return the texts before, between and after the fields of each line."""
    return [
        [*texts_around(line.text, places)]
        for line, places in zip(choice.lines, choice.places, strict=True)
    ]


def _aligned(texts: Sequence[str], name: str) -> list[str]:
    """Drop blanks before a number that only some lines have: fields allow them."""
    if name == "time" or all(text.endswith(" ") for text in texts):
        return [*texts]
    return [text.rstrip(" ") for text in texts]


def _text_between(texts: Sequence[str], starts_line: bool, *, is_long: bool) -> str:
    """Return the text before a field, with ``{}`` for what differs from line to line."""
    first = texts[0]
    same = all(text == first for text in texts) and _is_plain(first) and not _DIGITS.search(first)
    if same and (is_long or len(first) <= _SHORT):
        return first
    if all(_LAST_NUMBER.search(text) for text in texts):
        shorter = [_LAST_NUMBER.sub("", text) for text in texts]
        return _text_between(shorter, starts_line, is_long=is_long) + "{} "
    before, after = _kept_start(texts), _kept_end(texts)
    if same:
        before, after = first[: len(first) // 2], first[len(first) // 2 :]
    if not is_long:
        word = _LAST_WORD.search(after)
        after = after if word is None else word[0]
        signs = _FIRST_SIGNS.match(before)
        before = "" if starts_line or signs is None else signs[0]
    # Text has to follow ``{}``.
    return f"{before}{{}}{after}" if after.strip() else ""


def _is_plain(text: str) -> bool:
    """Whether a text can be typed, and does not look like a field."""
    return _typed(text) == text and not _FIELD.search(text)


def _typed(text: str) -> str:
    """Return the start of a text that can be typed."""
    for at, character in enumerate(text):
        if not character.isprintable() or character == "\ufffd":
            return text[:at]
    return text


def _kept_start(texts: Sequence[str]) -> str:
    """Return the common start of texts, up to the first number or field."""
    common = _typed(_common_start(texts))
    for form in (_DIGITS, _FIELD):
        common = form.split(common, maxsplit=1)[0]
    return common


def _kept_end(texts: Sequence[str]) -> str:
    """Return the common end of texts, after the last number or field."""
    common = _typed(_common_start([text[::-1] for text in texts]))[::-1]
    for form in (_DIGITS, _FIELD):
        common = form.split(common)[-1]
    return common


def _common_start(texts: Sequence[str]) -> str:
    # The common start of the first and the last in order is that of all.
    first, last = min(texts), max(texts)
    for at, (left, right) in enumerate(zip(first, last, strict=False)):
        if left != right:
            return first[:at]
    return first


def _end(texts: Sequence[str], form: re.Pattern[str]) -> str:
    """Return the sign or the unit after the last field."""
    ends = {match[0] if match else "" for match in map(form.match, texts)}
    return ends.pop() if len(ends) == 1 else ""
