"""Excerpts of printed logs for others to look at, without names.

Words that trainers print stay, and so do all numbers, because times, rates and counters are checked
against each other. Letters of other words become ``x``, and the digits within such words ``0``: names of
hosts, users, files, projects and models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from stallscope.errors import UnreadableError

from ..formats.printed_steps.vocabulary import is_known_word

#: Lines from the start of a log, and lines in a row with steps.
FIRST_LINES, STEP_LINES = 20, 30
# Steps begin within so many lines, each of which is cut.
_MOST_LINES, _MOST_CHARACTERS = 200_000, 2_000
# A line of which the log has fewer is no line of a step.
_FEWEST_ALIKE = 3

# A run of letters and digits: a number (with a unit, an exponent), a word, or a mixture.
_RUN = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:e\d+)?", re.ASCII)
_WITH_UNIT = re.compile(r"(\d+)([^\W\d_]+)")
_WITH_NUMBER = re.compile(r"([^\W\d_]+)(\d+)")
_PARTS = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Addresses of machines are numbers that tell who printed the log.
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){4,7}\b",
    re.ASCII | re.IGNORECASE,
)
_LETTER, _DIGIT, _DIGITS = re.compile(r"[^\W\d_]"), re.compile(r"\d"), re.compile(r"\d+")


def excerpt(path: Path) -> Iterator[str]:
    """Yield the first lines of a log, and some lines in a row with steps, with names masked.

    Raises:
        UnreadableError: if the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = list(islice(_cut(file), _MOST_LINES))
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}") from error
    yield from map(masked, lines[:FIRST_LINES])
    start = max(_first_step(lines), FIRST_LINES)
    if start > FIRST_LINES:
        yield "…"
    yield from map(masked, lines[start : start + STEP_LINES])


def masked(line: str) -> str:
    """Return a line whose words are those of trainers; other words are masked."""
    return _RUN.sub(_masked_run, _ADDRESS.sub(lambda match: _mask(match[0]), line))


def _cut(file: Iterable[str]) -> Iterator[str]:
    for line in file:
        yield line.rstrip("\r\n")[:_MOST_CHARACTERS]


def _first_step(lines: Sequence[str]) -> int:
    """Return the index of the first line of the kind that the log has most of, with two numbers."""
    kinds = [_DIGITS.sub("0", line) for line in lines]
    counts = Counter(kind for kind in kinds if kind.count("0") > 1)
    if not counts:
        return len(lines)
    kind, count = counts.most_common(1)[0]
    return kinds.index(kind) if count >= _FEWEST_ALIKE else len(lines)


def _masked_run(match: re.Match[str]) -> str:
    run = match[0]
    if _NUMBER.fullmatch(run) or _is_known(run):
        return run
    for pattern, word in ((_WITH_UNIT, 2), (_WITH_NUMBER, 1)):
        parts = pattern.fullmatch(run)
        if parts is not None and is_known_word(parts[word].lower()):
            return run
    return _mask(run)


def _is_known(run: str) -> bool:
    return all(is_known_word(word.lower()) for word in _PARTS.split(run))


def _mask(run: str) -> str:
    return _DIGIT.sub("0", _LETTER.sub("x", run))
