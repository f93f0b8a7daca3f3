"""Group lines by kind, with the numbers in them that may be fields."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from stallscope.arrays.types import Floats, Ints

from ...lines.timestamps import SINCE_1970, read_moment
from ...pattern_columns import DURATIONS, MOST_DIGITS, MOST_FRACTION_DIGITS
from .line_groups import FieldPlace, SampleLine, Template, places_in, template_of
from .roles import Role, RoleKind, roles_of

#: Fewer lines show no regularity.
FEWEST_LINES = 4
# The most lines of a kind to look at, and the most kinds, by frequency.
_MOST_LINES = 4000
_MOST_KINDS = 40
_SINCE_1970 = re.compile(SINCE_1970)
_TIME_NAME = re.compile(r"(?i)(?:time(?:_ms|_s|_sec)?|date)\W{0,8}$")
_TRAINS = re.compile(
    r"(?i)loss|epoch|iter|step|batch|update|train|cost"
    r"|(?<![a-z])(?:lr|acc|ppl|grad|ima?g|tok|word|samples|examples|seq)"
)
# The texts up to the last field, and the role of that field.
_Words = tuple[tuple[str, ...], tuple[bool, ...], Role]

NOTHING_REPEATS = "no kind of line repeats with changing numbers"
NOTHING_COUNTS = "no number in its repeating lines counts steps or epochs"
NO_TIMES = (
    "its lines count steps or epochs, and have neither timestamps nor durations; rates give "
    "times only if they are of samples, and the file has the batch size and the number of ranks"
)
WHOSE_TIMES = "its durations may be of one step, or of all steps since the line before"
#: Reasons why there is no pattern, from the first failed step to the last.
REASONS = (NOTHING_REPEATS, NOTHING_COUNTS, NO_TIMES, WHOSE_TIMES)
# The most consecutive lines that may repeat a number.
_MOST_REPEATS = 0.2


@dataclass(frozen=True)
class Candidate:
    """A number or timestamp in lines of one kind, which may be a field."""

    role: Role
    #: The text before it in the first line.
    before: str
    places: Sequence[FieldPlace]
    texts: Sequence[str]

    @cached_property
    def _is_readable(self) -> bool:
        return all(place.kind != "unreadable" for place in self.places)

    def integers(self, field_name: str) -> Ints | None:
        """Return the values as whole numbers of a field; None if some are not."""
        most = MOST_DIGITS[field_name]
        if all(text.isdigit() and len(text) <= most for text in self.texts):
            return np.array([int(text) for text in self.texts], np.int64)
        return None

    def floats(self) -> Floats | None:
        """Return the values of durations; None if some are not."""
        if not self._is_readable or self.role.kind == "time":
            return None
        for text in self.texts:
            whole, _, fraction = text.partition(".")
            if len(whole) > MOST_DIGITS["seconds"] or len(fraction) > MOST_FRACTION_DIGITS:
                return None
        return np.array([float(text) for text in self.texts])

    def moments(self) -> Ints | None:
        """Return the nanoseconds of timestamps; None if some are not."""
        if self.role.kind != "time":
            named = self.role.kind in ("stamp", "first") or _TIME_NAME.search(self.before)
            if not named or not all(_SINCE_1970.fullmatch(text) for text in self.texts):
                return None
        timestamps = [read_moment(text.encode()) for text in self.texts]
        if any(timestamp is None for timestamp in timestamps):
            return None
        return np.array(
            [timestamp.ns for timestamp in timestamps if timestamp is not None], np.int64
        )


@dataclass(frozen=True)
class LineKind:
    """Lines of one kind, with the numbers in them that may be fields."""

    #: Their numbers in the sample; ``lines`` are only the first ones.
    at: Sequence[int]
    lines: Sequence[SampleLine]
    columns: Sequence[Candidate]
    #: Whether they have the same fields, but different words.
    is_mixed: bool

    @property
    def is_of_a_trainer(self) -> bool:
        """Whether the first line has a word of training."""
        return _TRAINS.search(self.lines[0].plain) is not None

    def having(self, role: RoleKind) -> list[Candidate]:
        """Return the candidates of a role, in the order of the line."""
        return [column for column in self.columns if column.role.kind == role]


def kinds_of(lines: Sequence[SampleLine]) -> Iterator[LineKind]:
    """Yield the lines of each kind, the most frequent first.

    Lines are of one kind if they have the same words up to their last field, or the same fields.
    """
    roles_by_template: dict[Template, tuple[Role, ...]] = {}
    exact: dict[_Words, list[int]] = defaultdict(list)
    alike: dict[object, list[int]] = defaultdict(list)
    roles_at: list[tuple[Role, ...]] = []
    for at, line in enumerate(lines):
        template = template_of(line.plain)
        roles = roles_by_template.get(template)
        if roles is None:
            roles = roles_by_template[template] = roles_of(template)
        roles_at.append(roles)
        last = max((n for n, role in enumerate(roles) if role.kind != "other"), default=-1)
        if last >= 0:
            exact[_words(template, roles, last)].append(at)
            alike[tuple(role for role in roles if role.kind != "other")].append(at)
    _join_longer(exact, roles_at)
    exact_places = {tuple(places) for places in exact.values()}
    mixed = [places for places in alike.values() if tuple(places) not in exact_places]
    groups = [(places, False) for places in exact.values()] + [(places, True) for places in mixed]
    enough = [group for group in groups if len(group[0]) >= FEWEST_LINES]
    for places, is_mixed in sorted(enough, key=lambda group: -len(group[0]))[:_MOST_KINDS]:
        yield _kind_of(lines, places, roles_at, is_mixed=is_mixed)


def _words(template: Template, roles: Sequence[Role], last: int) -> _Words:
    return template.texts[: last + 1], template.is_time[: last + 1], roles[last]


def _join_longer(exact: dict[_Words, list[int]], roles_at: Sequence[tuple[Role, ...]]) -> None:
    """Add lines with more fields at their end to those with the same words before."""
    for (texts, is_time, _), at in [*exact.items()]:
        template, roles = Template(texts, is_time), roles_at[at[0]]
        starts = (_words(template, roles, last) for last in range(len(texts) - 2, -1, -1))
        shorter = next((exact[start] for start in starts if start in exact), [])
        if len(shorter) > len(at):
            shorter += at
            shorter.sort()


def _kind_of(
    lines: Sequence[SampleLine],
    at: Sequence[int],
    roles_at: Sequence[tuple[Role, ...]],
    *,
    is_mixed: bool,
) -> LineKind:
    kind_lines = [lines[number] for number in at[:_MOST_LINES]]
    places = [places_in(line.plain) for line in kind_lines]
    fields = [
        [n for n, role in enumerate(roles_at[number]) if role.kind != "other"]
        for number in at[:_MOST_LINES]
    ]
    columns = []
    # Some lines may have more fields at their end.
    for column in range(min(map(len, fields))):
        cells = [
            line_places[index[column]] for line_places, index in zip(places, fields, strict=True)
        ]
        before = kind_lines[0].plain[: cells[0].start][-40:]
        texts = [
            line.text[cell.start : cell.end] for line, cell in zip(kind_lines, cells, strict=True)
        ]
        columns.append(Candidate(roles_at[at[0]][fields[0][column]], before, cells, texts))
    return LineKind(at, kind_lines, columns, is_mixed)


# -- fields ----------------------------------------------------------------------------------------
#
# Hold the chosen fields of one kind of lines, and test whether numbers count.


@dataclass
class Fields:
    """The chosen fields of one kind of lines."""

    #: The rank of each line.
    stream: Ints
    #: By their names.
    chosen: dict[str, Candidate] = field(default_factory=dict)
    #: Their values; timestamps may also be those of a launcher.
    ns: Ints | None = None
    step: Ints | None = None
    epoch: Ints | None = None
    notes: list[str] = field(default_factory=list)
    #: The reason if no times are found.
    no_times: str = NO_TIMES

    @property
    def has_times(self) -> bool:
        """Whether a pattern can read times."""
        return self.ns is not None or not self.chosen.keys().isdisjoint({*DURATIONS, "rate"})

    def pairs(self) -> tuple[Ints, Ints]:
        """Return pairs of consecutive lines in the output of a rank."""
        order = np.argsort(self.stream, kind="stable")
        same = self.stream[order][1:] == self.stream[order][:-1]
        return order[:-1][same], order[1:][same]

    def go_on(self, numbers: Ints) -> bool:
        """Whether numbers do not fall, except to their start."""
        first, then = self.pairs()
        falls = (numbers[then] < numbers[first]) & (numbers[then] > numbers.min() + 1)
        return int(falls.sum()) <= 0.1 * len(falls)

    def count(self, numbers: Ints) -> bool:
        """Whether numbers rise evenly from line to line, and only begin again with an epoch."""
        first, then = self.pairs()
        change = numbers[then] - numbers[first]
        rises = change[change > 0]
        if len(rises) < FEWEST_LINES - 2:
            return False
        step, count = Counter(rises.tolist()).most_common(1)[0]
        begins = (change < 0) & (numbers[then] <= numbers.min() + step)
        if self.epoch is not None:
            begins |= (change < 0) & (self.epoch[then] > self.epoch[first])
        wrong = int(((change < 0) & ~begins).sum())
        return count >= 0.5 * len(rises) and wrong <= 0.1 * len(rises)

    def repeat(self) -> bool:
        """Whether lines often repeat the number of the line before, as mixed kinds of lines do."""
        numbers = self.epoch if self.step is None else self.step
        assert numbers is not None
        first, then = self.pairs()
        return int((numbers[then] == numbers[first]).sum()) > _MOST_REPEATS * len(first)

    def steps_apart(self) -> int:
        """Return the number of steps between lines."""
        if self.step is None:
            return 1
        first, then = self.pairs()
        change = self.step[then] - self.step[first]
        return int(np.median(change[change > 0]))
