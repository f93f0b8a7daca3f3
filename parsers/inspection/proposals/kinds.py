"""Group lines by kind, with the numbers in them that may be fields."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.types import Floats, Ints

from ...lines.timestamps import SINCE_1970, read_moment
from ...patterns.columns import MOST_DIGITS, MOST_FRACTION_DIGITS
from .lines import FieldPlace, SampleLine, Template, places_in, template_of
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
