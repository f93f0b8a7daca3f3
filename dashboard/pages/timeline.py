"""Every rank's steps as lanes, from the whole run to a single step."""

from __future__ import annotations

from typing import Any, ClassVar

from dash import Dash

from stallscope.analysis import Analysis
from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.one_step import late_steps
from stallscope.charts.over_time import machine_chart
from stallscope.formatting.lists import counted, listed
from stallscope.formatting.numbers import amount, finite
from stallscope.formatting.plain import plain

from ..components.chart_card import chart_card
from ..components.events_card import events_card
from ..components.notices import warnings_card
from ..components.sentence_card import sentence_card
from ..components.timeline_card import add_timeline_callbacks, jump, timeline_card
from ..store import RunStore
from ..timeline import add_timeline_route, gauges_of, head, lanes_of, marks
from .run_page import RunPage, Shown

# More buttons than these are a list, not a way.
_MOST_JUMPS = 6
# Timestamps are written in microseconds: nothing is known to 0 ms.
_LEAST_MS = 1e-3


class TimelinePage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/timeline"
    tab: ClassVar[str] = "Timeline"

    def parts(self, shown: Shown, store: RunStore) -> list[Any]:
        analysis = shown.analysis
        lanes = lanes_of(analysis)
        events = marks(analysis.run, lanes)
        if lanes is None:
            why = sentence_card("There are no stages to draw", analysis.bottleneck.evidence)
            machines = machine_chart(analysis)
            picture = None if machines is None else chart_card("machines", machines)
            return [why, picture, events_card(events)]
        gauges = gauges_of(analysis, lanes)
        data = head(analysis, lanes, shown.run_id, shown.baseline_id, shown.query, events, gauges)
        return [
            timeline_card(
                data,
                "Ranks over time",
                _sentence(analysis, lanes),
                amount(lanes.late_from, "ms"),
                [*_slow(analysis, lanes), *_changes(data)],
            ),
            events_card(events),
            warnings_card(_limits(analysis)),
        ]

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        add_timeline_callbacks(app)
        add_timeline_route(app, store)


def _sentence(analysis: Analysis, lanes: Lanes) -> str:
    late = len(late_steps(analysis))
    many = counted(late, "step") if late else "no step"
    verb = "are" if late > 1 else "is"
    return (
        f"{counted(len(lanes.rows), 'rank')}, {counted(len(lanes), 'step')} in "
        f"{amount(lanes.span / 1e6, 'ms')}; {many} {verb} late beyond chance and habit. "
        f"{clock_sentence(analysis)}"
    )


def clock_sentence(analysis: Analysis) -> str:
    """How exactly lanes stand above each other."""
    clocks = analysis.clocks
    if clocks is None or clocks.method == "one clock":
        return "All ranks share one clock, so lanes are aligned exactly."
    known = [finite(rank.clock_uncertainty_ms) for rank in analysis.ranks]
    most = max((value for value in known if value is not None), default=0.0)
    how = (
        "by the ends of their allreduces"
        if clocks.method == "completions"
        else "anew in every step, as if all of them had ended it at the same moment"
    )
    shift = (
        f"up to {amount(most, 'ms')}"
        if most >= _LEAST_MS
        else f"less than {amount(_LEAST_MS, 'ms')}"
    )
    return (
        f"The hosts' clocks were brought together {how}: lanes of different hosts may be shifted by "
        f"{shift}."
    )


def _slow(analysis: Analysis, lanes: Lanes) -> list[Any]:
    """Ways to the ranks that are named; of a host to its first one."""
    found: dict[int, str] = {}
    for one in analysis.stragglers:
        if one.hosts and one.ranks:
            found.setdefault(one.ranks[0], f"Slow host {plain(one.hosts[0])}")
        else:
            found |= {rank: f"Slow rank {rank}" for rank in one.ranks}
    there = [rank for rank in found if lanes.row_of(rank) is not None]
    return [jump(found[rank], rank=str(rank)) for rank in there[:_MOST_JUMPS]]


def _changes(data: dict[str, Any]) -> list[Any]:
    return [
        jump(change["words"], time=str(change["at"])) for change in data["changes"][:_MOST_JUMPS]
    ]


def _limits(analysis: Analysis) -> list[str]:
    limits = []
    missing = analysis.run.missing_ranks
    if missing:
        verb = "has" if len(missing) == 1 else "have"
        limits.append(f"{listed('rank', missing)} {verb} left no log and {verb} no lane")
    unknown = [rank.rank for rank in analysis.ranks if finite(rank.clock_uncertainty_ms) is None]
    if unknown:
        limits.append(
            f"the clock of {listed('rank', unknown)} could not be compared with the others'"
        )
    if analysis.clocks is not None:
        limits += [
            f"the clock of {clock} was set by {amount(abs(ms), 'ms')} at step {step:,}"
            for clock, step, ms in analysis.clocks.jumps
        ]
    if analysis.coverage.unused:
        limits.append(
            f"{counted(analysis.coverage.unused, 'step')} without timestamps of most ranks are blank"
        )
    if analysis.coverage.sampled_out:
        limits.append(
            f"{counted(analysis.coverage.sampled_out, 'step')} are blank: of this run some steps were "
            "recorded in full, and the others as sums"
        )
    return limits
