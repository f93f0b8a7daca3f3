"""Find what lines between those about steps are about: evaluations, checkpoints, and restarts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Ints

from .launcher_output import Lines
from .lines.line_blocks import Column, Needle, texts_of

#: Lines about work between steps, by what they name, as regular expressions for RE2.
WORK = {
    "validation": r"(?i)(?:^|[^a-z])(?:eval|valid|val(?:[^a-z]|$)|test(?:[^a-z]|$))",
    "checkpoint": (
        r"(?i)(?:^|[^a-z])(?:sav(?:e|ed|ing)[^a-z_].{0,80}(?:checkpoint|ckpt|model|state|weights)"
        r"|(?:checkpoint|ckpt|model|state).{0,80}[^a-z_]saved)"
    ),
}
# Settings name such work, too: arguments, data sets, and ``key: value`` unless the value is a fraction,
# as a result is. A key of one word is one if its value is a path, or in the lines below.
_WORD_OF_VALUE = r"(?:n[^a]|i[^n]|[a-hj-mo-z])[\w./-]*(?:$|[^\w./(-])"
_IS_FOLLOWED_BY_SETTING = (
    r"(?:[ \t]?[:=][ \t]*|[ \t]+\.{2,}[ \t]*|[ \t]{2,})"
    rf"(?:$|[\"'\[{{(/<]|{_WORD_OF_VALUE}|-?\d+(?:$|[^\d.%e/]))"
)
#: Settings in a line, for RE2.
SETTING = (
    r"(?im)--[a-z][\w-]*|\b[a-z]\w*_(?:datasets?|config|cfg)\b"
    rf"|\b[a-z]\w*_\w*[\"']?{_IS_FOLLOWED_BY_SETTING}"
    r"|^[ \t]*(?:- )?(?-i:[a-z]+):[ \t]*"
    r"(?:[\"'][^\"']*[\"']|true|false|(?:[a-z][\w-]*)?[./][\w./-]*)?[ \t]*$"
    r"|^[ \t]+(?:- )?(?-i:[a-z]+: [a-z]+)[ \t]*$"
)
# Texts of any such line.
_WORK_NEEDLES = tuple(map(Needle, (b"val", b"Val", b"test", b"Test", b"sav", b"Sav")))
#: The field with the number of restarts up to each line, and that with how often more lines than usual
#: are between two.
RESTART, OTHER = "restart", "other"
#: Work between steps; a field of its name has the number of lines about it up to each line.
WORK_BETWEEN = (*WORK, RESTART, OTHER)
# If a larger share of lines about steps names other work, it is a figure of steps.
_MOST_WORK = 0.5
# The number of lines about other work, or before the first step, that are compared, and the bytes that
# count of a line.
_MOST_COMPARED, _MOST_OF_LINE = 1000, 400
_WORD = re.compile(rb"[A-Za-z]+")
# So many of the lines that a program prints before its first step, and this share of them, are printed
# again where it starts again; at most this share of lines about steps follows a start.
_FEWEST_OF_START, _SHARE_OF_START, _MOST_STARTS = 3, 0.3, 0.1
# No epoch begins with so many lines.
_MANY_OF_START = 10
# The most of these lines that are compared, and what each of them has: two words.
_MOST_OF_START, _FIRST_BYTES, _TWO_WORDS = 300, 48, r"[A-Za-z]{2}[^A-Za-z]+[A-Za-z]{2}"


class WorkLines:
    """Counts the lines about other work, and the restarts, up to each line about steps.

    Settings before the first step name such work, too: lines before it only count if one with the same
    words comes later.
    """

    def __init__(self) -> None:
        self._works = {work: _Work(expression) for work, expression in WORK.items()}
        self._starts = ProgramStarts()
        # The lines since the last one about steps.
        self._others = 0

    def counts(self, lines: Lines, steps: Ints) -> dict[str, Ints]:
        """Return the number of lines about each work up to each line about steps.

        Args:
            lines: the next lines of the log.
            steps: the places of lines about steps among them.
        """
        block = lines.block
        at = np.unique(
            np.concatenate([block.lines_of(block.places(text)) for text in _WORK_NEEDLES])
        )
        at = at[at < len(lines.start)]
        starts = self._starts.counts(lines, steps) | {OTHER: self._between(lines, steps)}
        if not len(at):
            works = {work: counter.count_none(steps) for work, counter in self._works.items()}
            return {**works, **starts}
        start, end = lines.start[at], lines.end[at]
        # Digits name no work.
        end = np.minimum(end, start + _MOST_OF_LINE)
        texts = texts_of(block.digits_alike, start, end).dictionary_encode()
        of_work = pc.replace_substring_regex(texts.dictionary, SETTING, "")
        texts = pa.DictionaryArray.from_arrays(texts.indices, of_work)
        works = {work: counter.count(texts, at, steps) for work, counter in self._works.items()}
        return {**works, **starts}

    def _between(self, lines: Lines, steps: Ints) -> Ints:
        """Return the number of lines between each line about steps and the one before."""
        edges = np.concatenate([[-1 - self._others], steps])
        self._others = len(lines.start) - 1 - int(edges[-1])
        return np.diff(edges) - 1

    def settled(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Take the lines before the first step that are no work out of the counts of all blocks."""
        works = {work: columns[work] - counter.wrong for work, counter in self._works.items()}
        others = columns[OTHER] > np.median(columns[OTHER])
        # What a program prints before its first step is no work between steps.
        others[:1] = False
        return {**self._starts.settled(columns), **works, OTHER: np.cumsum(others)}


class _Work:
    """The lines about one kind of work."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._count = 0
        self._has_steps = False
        self._before: set[bytes] = set()
        self._compared = 0
        #: The number of lines before the first step that are no work.
        self.wrong = 0

    def count_none(self, steps: Ints) -> Ints:
        """Return the number of lines up to each line about steps, without further ones."""
        self._has_steps |= len(steps) > 0
        return np.full(len(steps), self._count)

    def count(self, texts: pa.DictionaryArray, places: Ints, steps: Ints) -> Ints:
        """Return the number of lines up to each line about steps, given those that may be about work."""
        matches = pc.match_substring_regex(texts.dictionary, self._expression)
        named = (arrow.numbers(matches) == 1)[arrow.numbers(texts.indices)]
        of_steps = np.isin(places, steps)
        if (named & of_steps).sum() > _MOST_WORK * len(steps):
            # Such a figure belongs to steps.
            named &= ~of_steps
        later = named.copy()
        if not self._has_steps:
            is_before = named & (places < steps[0] if len(steps) else True)
            later &= ~is_before
            self._before |= _words(texts, np.flatnonzero(is_before)[:_MOST_COMPARED])
            self.wrong += int(is_before.sum())
            self._has_steps = len(steps) > 0
        if self.wrong and self._compared < _MOST_COMPARED:
            compared = np.flatnonzero(later)[: _MOST_COMPARED - self._compared]
            self._compared += len(compared)
            if self._before & _words(texts, compared):
                self.wrong = 0
                self._compared = _MOST_COMPARED
        counts = self._count + np.searchsorted(places[named], steps, side="right")
        self._count += int(named.sum())
        return np.asarray(counts)


def _words(texts: pa.DictionaryArray, at: Ints) -> set[bytes]:
    distinct = pc.unique(texts.indices.take(arrow.array(at)))
    lines = texts.dictionary.take(distinct).to_pylist()
    return {b" ".join(_WORD.findall(line.lower())) for line in lines}


class ProgramStarts:
    """Finds where lines that a program prints before its first step are printed again."""

    def __init__(self) -> None:
        #: These lines, without their numbers, and how they begin.
        self._lines: list[bytes] = []
        self._begins: list[bytes] = []
        self._has_steps = False
        # Those since the last line about steps.
        self._again = np.zeros(0, np.int64)

    def counts(self, lines: Lines, steps: Ints) -> dict[str, Ints]:
        """Return how many of them are between each line about steps and the one before.

        Args:
            lines: the next lines of the log.
            steps: the places of lines about steps among them.
        """
        first = int(steps[0]) if len(steps) else len(lines.start)
        if not self._has_steps and len(self._lines) < _MOST_OF_START:
            self._add(lines, np.arange(min(first, _MOST_COMPARED)))
        at = np.delete(np.arange(len(lines.start)), steps)
        at = at[at > first] if not self._has_steps else at
        self._has_steps |= len(steps) > 0
        before = np.searchsorted(steps, at)
        enough = np.bincount(before, minlength=len(steps) + 1) >= self._fewest
        # The lines before the first step here, and after the last one, may be more.
        enough[[0, -1]] = True
        at, before = at[enough[before]], before[enough[before]]
        # Most other lines begin otherwise.
        begins = pc.is_in(_texts(lines, at, _FIRST_BYTES), value_set=_binary(self._begins))
        chosen = arrow.numbers(begins) == 1
        at, before = at[chosen], before[chosen]
        shapes = _shapes(lines, at)
        known = pc.index_in(shapes.dictionary, value_set=_binary(self._lines))
        line = arrow.numbers(pc.fill_null(known, -1))[arrow.numbers(shapes.indices)]
        most = max(len(self._lines), 1)
        code = np.union1d(self._again, (before * most + line)[line >= 0])
        self._again = code[code >= len(steps) * most] % most
        counts = np.bincount(code // most, minlength=len(steps) + 1)
        return {RESTART: counts[: len(steps)]}

    @property
    def _fewest(self) -> float:
        """Return how many of them show a start."""
        return max(_FEWEST_OF_START, _SHARE_OF_START * len(self._lines))

    def _add(self, lines: Lines, at: Ints) -> None:
        """Add lines before the first step, except those about work that comes again and again."""
        texts, begins = _shapes(lines, at).dictionary, _texts(lines, at, _FIRST_BYTES).to_pylist()
        self._begins = [*dict.fromkeys([*self._begins, *begins])][:_MOST_OF_START]
        chosen = pc.match_substring_regex(texts, _TWO_WORDS)
        for expression in WORK.values():
            chosen = pc.and_not(chosen, pc.match_substring_regex(texts, expression))
        every = dict.fromkeys([*self._lines, *texts.filter(chosen).to_pylist()])
        self._lines = [*every][:_MOST_OF_START]

    def settled(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Return columns with the number of restarts up to each line about steps.

        A few lines before parts of equal length are those of epochs.
        """
        counts = columns[RESTART]
        again = counts >= self._fewest
        parts = np.diff([0, *np.flatnonzero(again), len(counts)])
        alike = np.ptp(parts[:-1] if len(parts) > 2 else parts) <= 1
        are_epochs = alike and counts[again].max(initial=0) < _MANY_OF_START
        again = again & (not are_epochs and again.mean() <= _MOST_STARTS)
        return {**columns, RESTART: np.cumsum(again)}


def _texts(lines: Lines, at: Ints, most: int) -> pa.Array:
    """Return the first bytes of lines, with ones in place of all digits."""
    start = lines.start[at]
    return texts_of(lines.block.digits_alike, start, np.minimum(lines.end[at], start + most))


def _binary(texts: list[bytes]) -> pa.Array:
    return pa.array(texts, pa.binary())


def _shapes(lines: Lines, at: Ints) -> pa.DictionaryArray:
    """Return lines with one digit in place of each number."""
    texts = _texts(lines, at, _MOST_OF_LINE).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        texts.indices, pc.replace_substring_regex(texts.dictionary, "1+", "1")
    )


def begun_last(step: Ints, restart: Ints, begin: Ints, end: Ints) -> tuple[Ints, Bools]:
    """Return the first lines of epochs after restarts, and whether no epoch goes on after one.

    Args:
        step: the step of each line.
        restart: the number of restarts up to each line.
        begin: the first line of each epoch.
        end: the first line of the epoch after it.
    """
    starts = np.append(-1, np.flatnonzero(np.diff(restart) > 0) + 1)
    last = starts[np.searchsorted(starts, end, side="right") - 1]
    again = (last > begin) & (last < end) & (step[last] <= step[begin])
    return np.where(again, last, begin), again | (last <= begin)
