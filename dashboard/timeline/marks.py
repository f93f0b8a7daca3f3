"""Place the events of other logs on the timeline's axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stallscope.analysis.views.lanes import Lanes
from stallscope.formatting.numbers import amount
from stallscope.run import Event, Run
from stallscope.text.events import NOT_KNOWN, what, who

from .axis import TimeAxis

_S = 1e-9
# Marks on the axis and lines in the list: more are too many to read.
MOST_MARKS = 500


@dataclass(frozen=True)
class EventMark:
    """An event, and its position."""

    event: Event
    #: Nanoseconds on the axis; None if it is outside of the axis or not known.
    at: int | None
    #: Its time as text.
    when: str

    @property
    def words(self) -> str:
        return what(self.event)

    @property
    def who(self) -> str:
        """The ranks and hosts of the event."""
        return who(self.event)


def marks(run: Run, lanes: Lanes | None) -> list[EventMark]:
    """Return all events of a run by time; events without a known time come last.

    Args:
        run: the run.
        lanes: the lanes with the axis to place events on; None without any.
    """
    axis = None if lanes is None else TimeAxis.of(run, lanes)
    ordered = sorted(run.events, key=lambda event: (event.wall_ns is None, event.wall_ns or 0))
    return [_mark(event, axis) for event in ordered]


def marks_head(found: Sequence[EventMark], lanes: Lanes) -> list[dict[str, Any]]:
    """Return the marks on the axis for the script; times in seconds."""
    return [
        {
            "at": mark.at * _S,
            # From the start of the reported event to the end of its uncertainty.
            "from": max(mark.at - mark.event.waited_ns, 0) * _S,
            "to": min(mark.at + mark.event.uncertainty_ns, lanes.span) * _S,
            "when": mark.when,
            "words": mark.words,
            "who": mark.who,
        }
        for mark in found
        if mark.at is not None
    ][:MOST_MARKS]


def _mark(event: Event, axis: TimeAxis | None) -> EventMark:
    if event.wall_ns is None:
        return EventMark(event, None, NOT_KNOWN)
    if axis is None:
        return EventMark(event, None, f"{_utc(event.wall_ns)} UTC")
    (at,) = axis.place(np.array([event.wall_ns])).tolist()
    span = axis.lanes.span
    if at < 0:
        return EventMark(event, None, f"{amount(-at / 1e6, 'ms')} before the first step")
    if at > span:
        return EventMark(event, None, f"{amount((at - span) / 1e6, 'ms')} after the last step")
    step = int(axis.lanes.steps[axis.lanes.at(at)])
    return EventMark(event, at, f"{amount(at / 1e6, 'ms')}, step {step:,}")


def _utc(wall: int) -> str:
    return str(np.datetime64(wall, "ns").astype("datetime64[ms]")).replace("T", " ")
