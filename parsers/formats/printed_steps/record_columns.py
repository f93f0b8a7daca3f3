"""Keep the figures of records as columns, and tell which records are of one kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import joined

from ...lines.line_blocks import Column
from ...pattern import moments_of
from ...window_lines import WORK
from .figures import EVALUATES, FEWEST_LINES, NO_FIGURE, Figure, Kind, spelled
from .rows import Rows, joined_stamps, mask_of, numbers_of
from .vocabulary import Word, word_in, word_of

# The most columns and kinds of records. Those without some figures are a kind if they are this share.
_MOST_COLUMNS, _MOST_KINDS = 60, 8
_FEWEST_OF_ALL = 0.1
# The quantities without which records tell nothing come first.
_ORDER = {"step": 0, "epoch": 1, "stamp": 2, "time": 3, "rate": 4, "data": 5}
# The quantities that time steps.
TELL = ("time", "rate", "data", "stamp")
_IS_CLOCK, _IS_DATE = (
    r"^(?:\d{1,4} days?,? ?)?\d{1,4}:\d\d(?::\d\d)?(?:\.\d{1,9})?$",
    r"^\s*(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d )",
)
_OF_RAY_TUNE = frozenset({"training_iteration", "time_this_iter_s"})
RAY_TUNE = "its records count Ray Tune's reports, and not the steps between them"
_OF_TRAINING = re.compile("(?i)epoch|train|grad|loss")
# Times since 1970 are after 2001.
_EARLIEST_S = 1e9
_COUNT = ("step", "epoch", "samples")


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
        usual = np.nanmedian(np.append(self.figures[name][:1000], 0.0))
        return Word("stamp", 1.0) if word.quantity == "epoch" and usual > _EARLIEST_S else word

    def _kind(self, names: Sequence[str], words: Mapping[str, Word], chosen: Bools) -> Rows:
        figures = [
            Figure(words[name], spelled(name), "", "", name in self.clocks, False, "")
            for name in names
        ]
        trains = any(word_of(name).quantity == "trains" for name in self.names)
        count = int(chosen.sum())
        kind = Kind(figures, (), "", count, frozenset(map(spelled, self.names)), trains)
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
        having = {
            what: [name for name, quantity in quantities.items() if quantity in kinds]
            for what, kinds in {
                "count": _COUNT,
                "time": ("time", "data"),
                "rate": ("rate",),
                "stamp": ("stamp",),
            }.items()
        }
        timed = having["time"] + having["rate"] + having["stamp"]
        if not having["count"]:
            rest = f" beside {joined(timed)}" if timed else ""
            return f"no column of its records counts steps or epochs{rest}"
        if not timed and not self.stamps["timed"].any():
            return (
                f"its records count {joined(having['count'])}, and have neither times, rates nor "
                "timestamps"
            )
        if having["rate"] and len(timed) == len(having["rate"]) and not self.stamps["timed"].any():
            return (
                f"its records count {joined(having['count'])} and have rates ({joined(timed)}), and "
                "neither times nor timestamps"
            )
        return ""


def figures_of(column: pa.Array) -> tuple[bool, Floats]:
    """Return whether a column has hours and minutes, and its numbers, NaN for other contents."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = np.array(
            arrow.numbers(arrow.filled(column.cast(pa.float64(), safe=False), np.nan))
        )
        return False, np.where(np.isfinite(values), values, np.nan)
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False, np.full(len(column), np.nan)
    texts = pc.utf8_trim_whitespace(without_nulls(column))
    is_clock = bool(np.mean(mask_of(pc.match_substring_regex(texts, _IS_CLOCK))) > 0.5)
    return is_clock, numbers_of(texts, is_clock=is_clock)


def without_nulls(column: pa.Array) -> pa.Array:
    """Return texts with empty ones in place of nulls; a plain value would load pandas."""
    texts = column.cast(pa.string(), safe=False)
    return pc.fill_null(texts, arrow.scalar("", pa.string())) if texts.null_count else texts


def moments_in(column: pa.Array) -> dict[str, Column] | None:
    """Return the timestamps of a column of dates; None for other columns."""
    if pa.types.is_timestamp(column.type):
        zone_known = column.type.tz is not None
        column = pc.strftime(column, format="%Y-%m-%d %H:%M:%S" + ("Z" if zone_known else ""))
    if not pa.types.is_string(column.type):
        return None
    texts = without_nulls(column)
    if np.mean(mask_of(pc.match_substring_regex(texts, _IS_DATE))) <= 0.5:
        return None
    return moments_of([text.strip().encode() for text in texts.to_pylist()])
