"""Where what other logs tell lies on the timeline's axis.

Wall clocks tie it to the steps: that of the log that the axis is counted on, and that of whoever wrote
the event. They agree as well as the hosts' clocks are set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stallscope.analysis.blocks import Ints
from stallscope.analysis.lanes import Lanes
from stallscope.run import Event, Run
from stallscope.wording.numbers import amount
from stallscope.wording.plain import plain
from stallscope.wording.verdicts import listed

_S = 1e-9
# Marks on one axis and lines in one list: more of them nobody looks at one by one.
MOST_MARKS = 500
#: When an event was, where nobody tells.
NOT_KNOWN = "not known"
_LONGEST_WORDS = 300


@dataclass(frozen=True)
class Mark:
    """An event, and where it lies."""

    event: Event
    #: Nanoseconds on the axis; None where it lies outside of it, or nobody knows.
    at: int | None
    #: When it was, in words.
    when: str

    @property
    def words(self) -> str:
        return plain(self.event.what)[:_LONGEST_WORDS]

    @property
    def who(self) -> str:
        """The ranks and hosts that it is about."""
        ranks = listed("rank", self.event.ranks) if self.event.ranks else ""
        hosts = ", ".join(plain(host) for host in self.event.hosts[:4])
        return ", ".join(one for one in (ranks, hosts) if one)


def marks(run: Run, lanes: Lanes | None) -> list[Mark]:
    """All events of a run, those whose time is known first, by their times.

    Args:
        lanes: whose axis they lie on; None where there are none.
    """
    axis = None if lanes is None else _Axis.of(run, lanes)
    ordered = sorted(run.events, key=lambda event: (event.wall_ns is None, event.wall_ns or 0))
    return [_mark(event, axis) for event in ordered]


def as_head(found: Sequence[Mark], lanes: Lanes) -> list[dict[str, Any]]:
    """The marks on the axis as the script draws them; seconds."""
    return [
        {
            "at": mark.at * _S,
            # It had lasted so long by then, and may have been so much later than was written.
            "from": max(mark.at - mark.event.waited_ns, 0) * _S,
            "to": min(mark.at + mark.event.uncertainty_ns, lanes.span) * _S,
            "when": mark.when,
            "words": mark.words,
            "who": mark.who,
        }
        for mark in found
        if mark.at is not None
    ][:MOST_MARKS]


@dataclass(frozen=True)
class _Axis:
    """Wall time of the steps: nanoseconds since 1970."""

    lanes: Lanes
    #: Where the step, or what lies before it, begins, in ascending order; and where the step ends.
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, run: Run, lanes: Lanes) -> _Axis | None:
        """None where no wall clock ties the axis to UTC, or several do that have nothing in common."""
        rank = lanes.ledger.ranks[0]
        logs = [log for log in run.logs if log.rank == rank and log.wall_minus_monotonic]
        if not logs or len({log.clock_domain for log in logs}) > 1:
            return None
        logs.sort(key=lambda log: log.anchor)
        own = np.searchsorted([log.anchor for log in logs], lanes.ledger.reduced, "right") - 1
        offset = np.array([log.wall_minus_monotonic for log in logs], np.int64)[np.maximum(own, 0)]
        end = lanes.ledger.reduced + offset
        return cls(lanes, np.maximum.accumulate(end - (lanes.end - lanes.gap_begin)), end)

    def place(self, wall: int) -> int:
        """Nanoseconds on the axis: below 0 before the first step, beyond the span after the last."""
        step = max(int(np.searchsorted(self.begin, wall, "right")) - 1, 0)
        at = int(self.lanes.end[step]) + wall - int(self.end[step])
        if step + 1 < len(self.lanes):
            # Time between clocks that have nothing in common has no length on the axis.
            at = min(at, int(self.lanes.gap_begin[step + 1]))
        return at


def _mark(event: Event, axis: _Axis | None) -> Mark:
    if event.wall_ns is None:
        return Mark(event, None, NOT_KNOWN)
    if axis is None:
        return Mark(event, None, f"{_utc(event.wall_ns)} UTC")
    at, span = axis.place(event.wall_ns), axis.lanes.span
    if at < 0:
        return Mark(event, None, f"{amount(-at / 1e6, 'ms')} before the first step")
    if at > span:
        return Mark(event, None, f"{amount((at - span) / 1e6, 'ms')} after the last step")
    step = int(axis.lanes.ledger.steps[axis.lanes.at(at)])
    return Mark(event, at, f"{amount(at / 1e6, 'ms')}, step {step:,}")


def _utc(wall: int) -> str:
    return str(np.datetime64(wall, "ns").astype("datetime64[ms]")).replace("T", " ")
