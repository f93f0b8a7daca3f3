"""Charts of the step time over the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.change_points import ChangePoint
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.analysis.ledger.windows import RankWindows
from stallscope.analysis.views.machine_series import MachineQuantity, ValueColumns, over, quantities
from stallscope.analysis.views.rank_maps import (
    MOST_WINDOW_ROWS,
    WindowMap,
    rows_of_ranks,
    window_map,
)
from stallscope.arrays.types import Floats, Ints
from stallscope.formatting.lists import counted, joined
from stallscope.formatting.numbers import Scale, amount, scale_for
from stallscope.text.figure_words import PAUSES, printed_lines
from stallscope.text.machine_words import of_whom, reading, scale, title
from stallscope.text.vocabulary import TITLES, entry_name
from stallscope.words import CAUSES, STAGES

from .axis import Axis
from .chart_kinds import StackedArea, StepWindows
from .heat_map import HeatMap, HeatMapRow, HeatWords, label_of

#: The most points along the run that a chart shows; a screen cannot show more.
MOST_POINTS = 400
_MOST_MARKS = 200
# Gaps of the ledger that users can move.
_PAUSES = ("validation", "checkpoint")
# Windows whose median and 95th percentile make lines: each of enough steps for a percentile.
_MOST_WINDOWS, _FEWEST_WINDOWS, _FEWEST_STEPS = 40, 3, 20
# Nearly all cells are between the weakest and the strongest colour.
_NEARLY_LEAST, _NEARLY_MOST = 2, 95
# The least difference between them, as a share of the step: noise must not look like a fault.
_FULL_SHARE = 0.25
_WORDS = HeatWords("per step on average", "slowest")

#: Columns next to each other; a screen cannot show more.
_COLUMNS = 400


def step_time_chart(analysis: Analysis) -> StackedArea | None:
    """Chart the ledger by cause over the run, without warm-up, averaged to the resolution of a screen.

    If only printed step times are known, chart those. None without either.
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
        f"{counted(n, 'steady step')}{mean}.",
        "ms",
        "step",
        ledger.steps[edges[:-1]].astype(np.float64),
        layers,
        marks,
        tuple((float(change.step), change_text(change)) for change in analysis.changes),
        tuple(_pauses(ledger)),
        _rates(analysis, sum((values for _, values in layers), np.zeros(len(counts)))),
        _windows(ledger),
    )


def _windows(ledger: Ledger) -> StepWindows | None:
    """Summarise windows of successive steps; None for too few steps."""
    count = min(len(ledger) // _FEWEST_STEPS, _MOST_WINDOWS)
    if count < _FEWEST_WINDOWS:
        return None
    length = len(ledger) // count
    used = slice(len(ledger) - count * length, None)
    ms = ledger.total[used].reshape(count, length) / 1e6
    median, high = np.percentile(ms, (50, 95), axis=1)
    middles = ledger.steps[used].reshape(count, length)[:, length // 2]
    return StepWindows(length, middles.astype(np.float64), median, high)


def _printed_chart(printed: PrintedSteps) -> StackedArea:
    """Chart the windows of printed steps, without warm-up."""
    whole = printed.whole.chosen(~printed.is_warm_up)
    windows = whole.joined(MOST_POINTS)
    parts = [("steps", windows.ms)]
    if windows.input_ms is not None:
        parts = [
            ("input", windows.input_ms),
            ("rest", np.maximum(windows.ms - windows.input_ms, 0.0)),
        ]
    x = windows.step.astype(np.float64)
    if windows.alike is not windows:
        # A line about many steps has its width.
        x = np.stack([x, x + windows.steps - 1], axis=1).ravel()
        parts = [(name, np.repeat(values, 2)) for name, values in parts]
    joined = -(-len(whole) // max(len(windows), 1))
    mean = "" if joined == 1 else f", each point the mean of up to {joined} of them"
    return StackedArea(
        "Step time over the run",
        f"{printed_lines(printed)}{mean}.",
        "ms",
        "step",
        x,
        tuple(parts),
        epoch_starts(windows),
        tuple((float(change.step), change_text(change)) for change in printed.changes),
        tuple(_printed_pauses(printed)),
    )


def _printed_pauses(printed: PrintedSteps) -> Iterator[tuple[float, str]]:
    """Yield the steps of pauses with their kinds and their mean times."""
    for pauses in printed.pauses:
        label = f"{PAUSES[pauses.kind][0]} {amount(pauses.seconds / pauses.number, 's')}"
        for step in pauses.steps[:_MOST_MARKS]:
            if step >= printed.first_steady_step:
                yield float(step), label


def epoch_starts(windows: RankWindows) -> tuple[tuple[float, str], ...]:
    """Return the steps at which epochs start, with their names."""
    epoch = np.zeros(0, np.int64) if windows.epoch is None else windows.epoch
    starts = np.flatnonzero(windows.begins_epoch)[:_MOST_MARKS].tolist()
    return tuple((float(windows.step[at]), f"epoch {epoch[at]}") for at in starts)


def _layers(ledger: Ledger, analysis: Analysis) -> Iterator[tuple[str, Ints]]:
    """Yield every cause per step; the part of a stage that others wait for is a separate layer."""
    for name in CAUSES:
        whole = np.asarray(ledger.by_cause(name))
        if name not in STAGES or len(ledger.ranks) == 1:
            yield entry_name(name, analysis), whole
            continue
        waiting = np.clip(ledger.excess(name), 0, np.maximum(whole, 0))
        yield name, whole - waiting
        yield f"{name}_waiting", waiting


def change_text(change: ChangePoint) -> str:
    """Write a lasting change of the step time, and the entry that changes most: ``+10.1 ms input``."""
    by = f"{change.by_ms:+.1f}".replace("-", "−")
    if change.entry == "imbalance" and change.rank is not None:
        return f"{by} ms waiting for rank {change.rank}"
    what = "" if change.entry is None else f" {TITLES[change.entry].lower()}"
    return f"{by} ms{what}"


def _pauses(ledger: Ledger) -> Iterator[tuple[float, str]]:
    """Yield validation and checkpoints with the steps that they delay."""
    gaps = ledger.gaps[:, : len(_PAUSES)]
    for at in np.flatnonzero(gaps.sum(axis=1) > 0)[:_MOST_MARKS]:
        pairs = zip(_PAUSES, gaps[at].tolist(), strict=True)
        label = " and ".join(
            f"{TITLES[name].lower()} {amount(ns / 1e6, 'ms')}" for name, ns in pairs if ns
        )
        yield float(ledger.steps[at]), label


def _rates(analysis: Analysis, step_ms: Floats) -> Floats | None:
    if analysis.samples_per_second is None or analysis.step is None:
        return None
    per_step = analysis.samples_per_second * analysis.step.mean
    return np.divide(per_step, step_ms, out=np.zeros(len(step_ms)), where=step_ms > 0)


# -- Chart the step time of each rank over the run, from printed lines or another tool's log ------


def printed_ranks_chart(analysis: Analysis) -> HeatMap | None:
    """Chart the step time of each rank over the run, without warm-up. None for one rank."""
    printed = analysis.printed
    if printed is None or len(printed.ranks) < 2:
        return None
    host_of = {log.rank: str(log.facts.get("host") or "") for log in analysis.run.logs}
    hosts = [host_of.get(rank.rank, "") for rank in printed.ranks]
    rows = rows_of_ranks(hosts, most=MOST_WINDOW_ROWS)
    windows = window_map(printed.ranks, rows, printed.first_steady_step)
    numbers = [rank.rank for rank in printed.ranks]
    together = max(map(len, rows))
    cell = _cell(windows, together)
    least, full = _scale(windows)
    return HeatMap(
        title="Step time of each rank over the run",
        sentence=_sentence(printed, cell),
        unit="ms",
        x_label="step",
        rows=tuple(
            HeatMapRow(
                label_of([numbers[at] for at in row]),
                hosts[row[0]] if hosts[row[0]] == hosts[row[-1]] else "",
            )
            for row in rows
        ),
        edges=windows.edges.astype(np.float64) - 0.5,
        values=windows.mean,
        most=windows.most,
        most_at=windows.most_step.astype(np.float64),
        most_of=np.asarray(numbers, np.float64)[windows.most_rank],
        full=full,
        cell=cell,
        of_latest=together > 1,
        words=_WORDS,
        least=least,
        marks=_shifted(epoch_starts(printed.whole.chosen(~printed.is_warm_up))),
        changes=_shifted((float(change.step), change_text(change)) for change in printed.changes),
    )


def _shifted(marks: Iterable[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """Move marks to where the cells of their steps begin."""
    return tuple((at - 0.5, label) for at, label in marks)


def _scale(windows: WindowMap) -> tuple[float, float]:
    known = windows.mean[~np.isnan(windows.mean)]
    least, most = np.percentile(known, (_NEARLY_LEAST, _NEARLY_MOST)).tolist()
    return least, max(most, least * (1 + _FULL_SHARE))


def _cell(windows: WindowMap, together: int) -> str:
    """Describe a cell; empty if it is one step of one rank."""
    steps = int(np.median(np.diff(windows.edges)))
    of_steps = f"the mean of about {counted(steps, 'step')}" if steps > 1 else ""
    if together == 1:
        return of_steps
    of_ranks = f"the slowest of up to {together:,} ranks"
    return f"{of_ranks}, {of_steps}" if of_steps else of_ranks


def _sentence(printed: PrintedSteps, cell: str) -> str:
    ranks = len(printed.ranks)
    stands_for = f" Each cell is {cell}." if cell else ""
    return (
        f"How long a step takes on each of {counted(ranks, 'rank')}, without warm-up: the stronger the "
        f"colour, the longer.{stands_for} {_range(printed)}"
    )


def _range(printed: PrintedSteps) -> str:
    ordered = sorted(printed.ranks, key=lambda rank: rank.mean_ms)
    low, high = (
        f"{amount(rank.mean_ms, 'ms')} (rank {rank.rank})" for rank in (ordered[0], ordered[-1])
    )
    if amount(ordered[0].mean_ms, "ms") == amount(ordered[-1].mean_ms, "ms"):
        return f"Over all steps, the mean of each rank is {amount(ordered[0].mean_ms, 'ms')}."
    return f"Means over all steps are from {low} to {high}."


# -- Chart machine metrics over a run's time ------------------------------------------------------


@dataclass(frozen=True)
class OverTime:
    """A mean within the range of single values; NaN was not measured."""

    title: str
    sentence: str
    unit: str
    #: The end of the axis of values, which starts at zero.
    top: float
    #: Seconds since the run's start: the middle of each column.
    x: Floats
    columns: ValueColumns

    @property
    def y(self) -> Axis:
        """The axis of values."""
        return Axis(0.0, self.top, self.unit)

    @property
    def times(self) -> Scale:
        """A readable unit for the times."""
        return scale_for(float(self.x[-1]), "s")


def machine_chart(analysis: Analysis) -> OverTime | None:
    """Chart how busy machines were: GPUs, or else CPU cores. None if it was not measured."""
    measured = quantities(analysis.run)
    began = analysis.run.started_at
    if not measured or began is None:
        return None
    quantity = measured[0]
    zero = round(began.timestamp() * 1e9)
    start = min(zero, min(int(series.wall_ns[0]) for series in quantity.series))
    end = max(int(series.wall_ns[-1]) for series in quantity.series) + 1
    columns = over(
        [series.wall_ns for series in quantity.series],
        [series.value for series in quantity.series],
        start,
        end,
        _COLUMNS,
    )
    unit = scale(quantity)
    middles = (
        start - zero + (end - start) * (np.arange(_COLUMNS, dtype=np.float64) + 0.5) / _COLUMNS
    )
    return OverTime(
        f"{title(quantity)} over the run",
        _rate_sentence(quantity, columns),
        unit.unit,
        quantity.top * unit.factor,
        middles * 1e-9,
        ValueColumns(*(part * unit.factor for part in (columns.low, columns.mean, columns.high))),
    )


def _rate_sentence(quantity: MachineQuantity, columns: ValueColumns) -> str:
    of, unit = of_whom(quantity), scale(quantity)
    apart = [np.diff(series.wall_ns) for series in quantity.series if len(series.wall_ns) > 1]
    often = (
        f", every {amount(float(np.median(np.concatenate(apart))) / 1e6, 'ms')}" if apart else ""
    )
    low, high = np.nanmin(columns.low), np.nanmax(columns.high)
    where = joined(list(dict.fromkeys(series.where for series in quantity.series)))
    return (
        f"{f'Of {of}: the' if of else 'The'} mean, and the range of single values, "
        f"{reading(low, unit)} to {reading(high, unit)} in all. Measured by the machines themselves"
        f"{often} ({where})."
    )
