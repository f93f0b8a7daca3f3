"""Descriptions of charts, made from an Analysis.

Every chart has a sentence that says what it shows; screen readers read it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.change_points import ChangePoint
from stallscope.analysis.ledger.entries import waiting_part
from stallscope.analysis.ledger.figures import RankSummary
from stallscope.analysis.ledger.ledger import CAUSES, STAGES, Ledger
from stallscope.analysis.ledger.printed_steps import PrintedSteps, RankWindows
from stallscope.arrays.types import Floats, Ints
from stallscope.formatting.numbers import amount, finite
from stallscope.formatting.sums import SumColumn
from stallscope.text.baselines import against
from stallscope.text.job import (
    JOB_PARTS,
    goodput_column,
    goodput_parts,
    goodput_sentence,
    job_column,
)
from stallscope.text.printed_steps import printed_lines
from stallscope.text.step_figures import RANK_PARTS, StepFigures
from stallscope.text.titles import TITLES, entry_name, entry_title

from .compared_bars import ComparedBars
from .curves import EfficiencyLines, OverRuns
from .heat_map import HeatMap
from .over_time import OverTime, machine_chart
from .rank_windows import rank_windows_chart
from .rates import RateBars

#: The most points along the run that a chart shows; a screen cannot show more.
MOST_POINTS = 400
#: The most bars that can be read; of more ranks the latest are chosen.
MOST_RANKS = 32
_MOST_MARKS = 200
# Gaps of the ledger that users put there.
_PAUSES = ("validation", "checkpoint")


@dataclass(frozen=True)
class Segment:
    """A part of a bar; ``name`` is a key of TITLES and of the palette."""

    name: str
    value: float
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bar:
    """A labelled row of segments."""

    label: str
    segments: tuple[Segment, ...]
    #: Whether it stands out, as a straggler does.
    emphasised: bool = False
    #: The segments and their total as printed, where a table has the same figures.
    printed: SumColumn | None = None

    @property
    def total(self) -> float:
        """Sum the segments."""
        return sum(segment.value for segment in self.segments)


@dataclass(frozen=True)
class StackedBars:
    """Horizontal bars made of segments."""

    title: str
    sentence: str
    unit: str
    bars: tuple[Bar, ...]

    @cached_property
    def printed(self) -> list[SumColumn]:
        """Round every bar's segments; those that no table has get the longest bar's digits."""
        values = [[finite(one.value) or 0.0 for one in bar.segments] for bar in self.bars]
        longest = max(values, key=sum, default=[])
        usual = SumColumn.of(longest, sum(longest), unit=self.unit)
        return [
            bar.printed or usual.in_same_digits(own)
            for bar, own in zip(self.bars, values, strict=True)
        ]


@dataclass(frozen=True)
class StackedArea:
    """Ledger entries over the run, stacked. Marks, changes and pauses are steps with labels."""

    title: str
    sentence: str
    unit: str
    x_label: str
    x: Floats
    layers: tuple[tuple[str, Floats], ...]
    #: Where epochs start.
    marks: tuple[tuple[float, str], ...] = ()
    #: Where the step time changes for good.
    changes: tuple[tuple[float, str], ...] = ()
    #: Gaps before a step: validation, checkpoints.
    pauses: tuple[tuple[float, str], ...] = ()
    #: Samples per second at every point; None if unknown.
    rates: Floats | None = None


@dataclass(frozen=True)
class Waterfall:
    """From one total to another by what each entry adds or saves."""

    title: str
    sentence: str
    unit: str
    start: tuple[str, float]
    changes: tuple[Segment, ...]
    end: tuple[str, float]
    #: The changes as printed, and the start; the end is their sum.
    printed: SumColumn
    printed_start: float

    @property
    def printed_end(self) -> float:
        """Add up the start and the changes as printed."""
        return round(self.printed_start + self.printed.total, self.printed.decimals)


Chart = (
    StackedBars
    | StackedArea
    | Waterfall
    | HeatMap
    | ComparedBars
    | RateBars
    | EfficiencyLines
    | OverRuns
    | OverTime
)


def cause_chart(analysis: Analysis) -> StackedBars | None:
    """Chart the step by cause, and the baseline's step below it. None without stages.

    The pale part of a stage is the time that other ranks wait for the slowest rank.
    """
    step = analysis.step
    figures = StepFigures.of(analysis)
    if step is None or figures is None:
        return None
    bars = [cause_bar("this run", analysis, figures)]
    base = figures.in_same_digits(analysis.baseline)
    if analysis.baseline is not None and base is not None:
        bars.append(cause_bar("baseline", analysis.baseline, base))
    largest = max(analysis.by_cause, key=lambda entry: entry.ms)
    name = entry_title(largest.name, analysis).lower()
    own = figures.causes.amount(figures.part(largest.name), largest.ci95_ms)
    waiting = ""
    if figures.waiting(largest.name):
        waits = figures.causes.amount(figures.waiting(largest.name))
        waiting = f", {waits} of it waiting for slow ranks"
    return StackedBars(
        f"Step time: {figures.causes.amount(figures.causes.total, step.ci95)}",
        f"The largest part is {name} with {own}{waiting}.",
        "ms",
        tuple(bars),
    )


def cause_bar(label: str, analysis: Analysis, figures: StepFigures) -> Bar:
    """Chart the step by cause as a bar; the part that others wait for is a separate segment."""
    segments, printed = [], []
    for entry in analysis.by_cause:
        waiting, waits = waiting_part(entry), figures.waiting(entry.name)
        own = entry.ci95_ms if not waiting else None
        segments.append(Segment(entry_name(entry.name, analysis), entry.ms - waiting, own))
        printed.append(figures.part(entry.name) - waits)
        if waiting:
            segments.append(Segment(f"{entry.name}_waiting", waiting))
            printed.append(waits)
    return Bar(label, tuple(segments), printed=figures.causes.of_rounded(printed))


def ranks_chart(analysis: Analysis) -> StackedBars | None:
    """Chart every rank's own step: its work, then its wait. None without stages.

    Stragglers come first, then ranks host by host. Of many ranks the latest are shown, and the mean of
    the others.
    """
    ranks = [rank for rank in analysis.ranks if rank.wait_ms is not None]
    if not ranks:
        return None
    named = set(analysis.bottleneck.ranks)
    shown, others = ranks, []
    if len(ranks) > MOST_RANKS:
        # The latest ranks wait least.
        by_lateness = sorted(ranks, key=lambda one: (one.rank not in named, one.wait_ms or 0.0))
        shown, others = by_lateness[:MOST_RANKS], by_lateness[MOST_RANKS:]
    hosts = list(dict.fromkeys(rank.host for rank in ranks))
    shown = sorted(shown, key=lambda one: (one.rank not in named, hosts.index(one.host), one.rank))
    figures = StepFigures.of(analysis)
    bars = [
        _rank_bar(
            f"rank {one.rank}" if len(hosts) == 1 else f"rank {one.rank} · {one.host}",
            [one],
            figures,
            emphasised=one.rank in named,
        )
        for one in shown
    ]
    if others:
        bars.append(_rank_bar(f"mean of the other {len(others):,}", others, figures))
    what = f"The {len(shown)} latest of {len(ranks):,} ranks" if others else "All ranks"
    order = "those that are named first, then host by host" if len(hosts) > 1 else ""
    return StackedBars(
        "Ranks side by side",
        f"{what}{', ' if order else ''}{order}: what each did in a step, and how long it waited for the "
        "last one.",
        "ms",
        tuple(bars),
    )


def _rank_bar(
    label: str,
    ranks: Sequence[RankSummary],
    figures: StepFigures | None,
    *,
    emphasised: bool = False,
) -> Bar:
    """Average the steps of some ranks."""
    means = [
        float(np.mean([getattr(rank, f"{name}_ms") or 0.0 for rank in ranks]))
        for name in RANK_PARTS
    ]
    return Bar(
        label,
        tuple(map(Segment, RANK_PARTS, means)),
        emphasised,
        None if figures is None else figures.of_parts(means),
    )


def step_time_chart(analysis: Analysis) -> StackedArea | None:
    """Chart the ledger by cause over the run, without warm-up, averaged to what a screen can show.

    Where lines about steps are all that is known, chart what they say; None without either.
    """
    ledger = analysis.steady
    if analysis.printed is not None:
        return _printed_chart(analysis.printed)
    if ledger is None:
        return None
    n = len(ledger)
    edges = np.unique(np.linspace(0, n, min(n, MOST_POINTS) + 1).astype(np.int64))
    counts = np.diff(edges)
    layers = tuple(
        (name, np.add.reduceat(values, edges[:-1]) / counts / 1e6)
        for name, values in _layers(ledger, analysis)
    )
    starts = np.flatnonzero(np.diff(ledger.epochs, prepend=ledger.epochs[0] - 1))
    marks = tuple(
        (float(ledger.steps[at]), f"epoch {ledger.epochs[at]}") for at in starts[:_MOST_MARKS]
    )
    mean = "" if counts.max() == 1 else f", each point the mean of {int(counts.max())} steps"
    return StackedArea(
        "Step time over the run",
        f"{n} steady steps{mean}.",
        "ms",
        "step",
        ledger.steps[edges[:-1]].astype(np.float64),
        layers,
        marks,
        tuple((float(one.step), _change(one)) for one in analysis.changes),
        tuple(_pauses(ledger)),
        _rates(analysis, sum((values for _, values in layers), np.zeros(len(counts)))),
    )


def _printed_chart(printed: PrintedSteps) -> StackedArea:
    """Chart the windows of steps that lines are about, without warm-up."""
    whole = printed.whole.chosen(~printed.is_warm_up)
    own = whole.joined(MOST_POINTS)
    parts = [("steps", own.ms)]
    if own.input_ms is not None:
        parts = [("input", own.input_ms), ("rest", np.maximum(own.ms - own.input_ms, 0.0))]
    joined = -(-len(whole) // max(len(own), 1))
    mean = "" if joined == 1 else f", each point the mean of up to {joined} of them"
    return StackedArea(
        "Step time over the run",
        f"{printed_lines(printed)}{mean}.",
        "ms",
        "step",
        own.step.astype(np.float64),
        tuple(parts),
        _epoch_starts(own),
        tuple((float(one.step), _change(one)) for one in printed.changes),
    )


def _epoch_starts(windows: RankWindows) -> tuple[tuple[float, str], ...]:
    epoch = np.zeros(0, np.int64) if windows.epoch is None else windows.epoch
    starts = np.flatnonzero(windows.begins_epoch)[:_MOST_MARKS].tolist()
    return tuple((float(windows.step[at]), f"epoch {epoch[at]}") for at in starts)


def printed_ranks_chart(analysis: Analysis) -> HeatMap | None:
    """Chart the step time of each rank that printed lines over the run. None unless several did."""
    printed = analysis.printed
    if printed is None:
        return None
    epochs = _epoch_starts(printed.whole.chosen(~printed.is_warm_up))
    changes = tuple((float(one.step), _change(one)) for one in printed.changes)
    return rank_windows_chart(analysis, epochs, changes)


def _layers(ledger: Ledger, analysis: Analysis) -> Iterator[tuple[str, Ints]]:
    """Give every cause per step; the part of a stage that others wait for is a separate layer."""
    for name in CAUSES:
        whole = np.asarray(ledger.by_cause(name))
        if name not in STAGES or len(ledger.ranks) == 1:
            yield entry_name(name, analysis), whole
            continue
        waiting = np.clip(ledger.excess(name), 0, np.maximum(whole, 0))
        yield name, whole - waiting
        yield f"{name}_waiting", waiting


def _change(change: ChangePoint) -> str:
    rank = "" if change.rank is None else f" of rank {change.rank}"
    by = f"{change.by_ms:+.1f}".replace("-", "−")
    what = "" if change.entry is None else f" {TITLES[change.entry].lower()}"
    return f"{by} ms{what}{rank}"


def _pauses(ledger: Ledger) -> Iterator[tuple[float, str]]:
    """Give validation and checkpoints before the steps that they delay."""
    own = ledger.gaps[:, : len(_PAUSES)]
    for at in np.flatnonzero(own.sum(axis=1) > 0)[:_MOST_MARKS]:
        pairs = zip(_PAUSES, own[at].tolist(), strict=True)
        label = " and ".join(
            f"{TITLES[name].lower()} {amount(ns / 1e6, 'ms')}" for name, ns in pairs if ns
        )
        yield float(ledger.steps[at]), label


def _rates(analysis: Analysis, step_ms: Floats) -> Floats | None:
    if analysis.samples_per_second is None or analysis.step is None:
        return None
    per_step = analysis.samples_per_second * analysis.step.mean
    return np.divide(per_step, step_ms, out=np.zeros(len(step_ms)), where=step_ms > 0)


def baseline_chart(analysis: Analysis) -> Waterfall | None:
    """Chart the changes from the baseline's step to this run's. None without stages in both."""
    base = analysis.baseline
    figures = StepFigures.of_both(analysis, base)
    if base is None or base.step is None or analysis.step is None or figures is None:
        return None
    own, usual = figures
    changes = tuple(
        Segment(entry.name, entry.excess_ms, entry.excess_ci95_ms)
        for entry in analysis.by_cause
        if entry.excess_ms is not None
    )
    title, sentence = against(analysis)
    return Waterfall(
        "Against the synthetic baseline",
        f"{title}. {sentence}",
        "ms",
        ("baseline", base.step.mean),
        changes,
        ("this run", analysis.step.mean),
        own.causes.less(usual.causes),
        usual.causes.total,
    )


def network_chart(analysis: Analysis) -> StackedBars | None:
    """Chart what the gradients take on the network, above what the run exposes. None if unknown."""
    use = analysis.network_use
    if use is None or use.parts is None or use.differs or use.exposed_ms is None:
        return None
    parts = {name: mean for name, mean in vars(use.parts).items() if mean is not None}
    alone = tuple(Segment(name, mean.value, mean.ci95) for name, mean in parts.items())
    exposed = Segment("allreduce", use.exposed_ms.value, use.exposed_ms.ci95)
    bars = (Bar("nothing trains", alone), Bar("this run", (exposed,)))
    sentence = "All gradients of a step, reduced while nothing trains, and what this run waits for."
    return StackedBars("Gradients on this network", sentence, "ms", bars)


def job_chart(analysis: Analysis) -> StackedBars | None:
    """Chart goodput and what each cause takes from it. None without stages of steps."""
    goodput = analysis.goodput
    if goodput is None:
        return None
    parts = goodput_parts(goodput)
    printed = goodput_column(analysis)
    bar = Bar("job", tuple(Segment(name, value) for name, value in parts), printed=printed)
    return StackedBars("Where the job's time went", goodput_sentence(goodput), "s", (bar,))


def job_bar(label: str, analysis: Analysis) -> Bar:
    """Chart the parts of a job's time as a bar."""
    segments = tuple(Segment(name, getattr(analysis.job, name)) for name in JOB_PARTS)
    return Bar(label, segments, printed=job_column(analysis))


def charts_of(analysis: Analysis) -> Sequence[Chart]:
    """List all charts of a run, the most important first."""
    return [*named_charts(analysis).values()]


def named_charts(analysis: Analysis) -> dict[str, Chart]:
    """Return all charts of a run by name, the most important first."""
    made = {
        "by_cause": cause_chart(analysis),
        "baseline": baseline_chart(analysis),
        "ranks": ranks_chart(analysis),
        "steps": step_time_chart(analysis),
        "printed_ranks": printed_ranks_chart(analysis),
        "network": network_chart(analysis),
        "machines": machine_chart(analysis),
        "job": job_chart(analysis),
    }
    return {name: chart for name, chart in made.items() if chart is not None}
