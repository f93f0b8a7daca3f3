"""Place machine metrics and events on the timeline's axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import Reason
from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.machine_series import MachineQuantity, over, quantities
from stallscope.analysis.views.rank_maps import reduced_at
from stallscope.arrays.types import Ints
from stallscope.formatting.numbers import amount
from stallscope.run import Event, Run
from stallscope.text.job_words import NOT_KNOWN, what, who
from stallscope.text.machine_words import label, of_whom, scale, title

from ..store.cache import cached

# More are too many to choose from. Metrics of all machines together come first.
_MOST_GAUGES = 200

_S = 1e-9
# Marks on the axis and lines in the list: more are too many to read.
MOST_MARKS = 500


@dataclass(frozen=True)
class Gauge:
    """A quantity, and the positions of its values on the axis."""

    quantity: MachineQuantity
    at: tuple[Ints, ...]


def gauges(analysis: Analysis, lanes: Lanes) -> list[Gauge]:
    """Return the quantities with values on the axis, the most important first."""
    run = analysis.run
    axis = TimeAxis.of(run, lanes)
    if axis is None:
        return []
    at = {id(series): axis.place(series.wall_ns) for series in run.series}
    placed = (
        Gauge(quantity, tuple(at[id(series)] for series in quantity.series))
        for quantity in quantities(run)
    )
    on_axis = [gauge for gauge in placed if _is_on_axis(gauge, lanes.span)]
    if analysis.bottleneck.why:
        reason = analysis.bottleneck.why[0]
        on_axis.sort(key=lambda gauge: _order(gauge.quantity, reason))
    return on_axis[:_MOST_GAUGES]


def _order(quantity: MachineQuantity, reason: Reason) -> int:
    """Put the metric that explains the verdict first: of a slow rank, or else of all ranks."""
    if quantity.name != reason.series:
        return 2
    return int(quantity.whole or quantity.series[0].rank not in reason.ranks)


def gauges_of(analysis: Analysis, lanes: Lanes) -> list[Gauge]:
    """Return ``gauges`` of an analysis, computed once."""
    return cached(analysis, "gauges", lambda: gauges(analysis, lanes))


def gauges_head(on_axis: Sequence[Gauge]) -> list[dict[str, Any]]:
    """Return the names and units of gauges for the script."""
    return [_head(gauge.quantity) for gauge in on_axis]


def columns_of(
    gauge: Gauge, start: int, end: int, columns: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Return minimum, mean and maximum per column of a part of the axis; NaN without a value."""
    values = [series.value for series in gauge.quantity.series]
    ranges = over(gauge.at, values, start, end, columns)
    arrays = {"low": ranges.low, "mean": ranges.mean, "high": ranges.high}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _is_on_axis(gauge: Gauge, span: int) -> bool:
    return any(bool(((at >= 0) & (at <= span)).any()) for at in gauge.at)


def _head(quantity: MachineQuantity) -> dict[str, Any]:
    unit = scale(quantity)
    return {
        "key": quantity.key,
        "label": label(quantity),
        "title": title(quantity),
        "of": of_whom(quantity),
        # Shown values are logged values times the factor.
        "loggedUnit": quantity.unit,
        "unit": unit.unit,
        "factor": unit.factor,
        "top": quantity.top,
    }


# -- Convert wall time to positions on the timeline's axis ----------------------------------------
#
# The axis follows the clock of one log per generation; events and metrics have the wall clocks of
# their writers. Positions are as accurate as these clocks agree.


@dataclass(frozen=True)
class TimeAxis:
    """Wall time of the steps: nanoseconds since 1970."""

    lanes: Lanes
    #: When each step starts, with the gap before it, in ascending order; and when it ends.
    start: Ints
    end: Ints

    @classmethod
    def of(cls, run: Run, lanes: Lanes) -> TimeAxis | None:
        """Return the axis; None if a log has no wall clock, or has several unrelated ones."""
        ends = [
            reduced_at(run, generation.ledger, generation.number)
            for generation in lanes.generations
        ]
        known = [times for times in ends if times is not None]
        if len(known) < len(ends):
            return None
        end = np.concatenate(known)
        return cls(lanes, np.maximum.accumulate(end - (lanes.end - lanes.gap_begin)), end)

    def place(self, walls: Ints) -> Ints:
        """Return nanoseconds on the axis: below 0 before the first step, above the span at the end."""
        lanes = self.lanes
        step = np.maximum(np.searchsorted(self.start, walls, "right") - 1, 0)
        at = lanes.end[step] + walls - self.end[step]
        # Time between unrelated clocks has no length on the axis.
        following = np.minimum(step + 1, len(lanes) - 1)
        return np.where(following > step, np.minimum(at, lanes.gap_begin[following]), at)


# -- Place the events of other logs on the timeline's axis ----------------------------------------


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


def marks_head(event_marks: Sequence[EventMark], lanes: Lanes) -> list[dict[str, Any]]:
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
        for mark in event_marks
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
