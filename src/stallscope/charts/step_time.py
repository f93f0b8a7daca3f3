"""Charts of the step time over the run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.change_points import ChangePoint
from stallscope.analysis.ledger.ledger import CAUSES, STAGES, Ledger
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.analysis.ledger.windows import RankWindows
from stallscope.arrays.types import Floats, Ints
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount
from stallscope.text.printed_steps import printed_lines
from stallscope.text.titles import TITLES, entry_name

from .kinds import StackedArea, StepWindows

#: The most points along the run that a chart shows; a screen cannot show more.
MOST_POINTS = 400
_MOST_MARKS = 200
# Gaps of the ledger that users can move.
_PAUSES = ("validation", "checkpoint")
# Windows whose median and 95th percentile make lines: each of enough steps for a percentile.
_MOST_WINDOWS, _FEWEST_WINDOWS, _FEWEST_STEPS = 40, 3, 20


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
    joined = -(-len(whole) // max(len(windows), 1))
    mean = "" if joined == 1 else f", each point the mean of up to {joined} of them"
    return StackedArea(
        "Step time over the run",
        f"{printed_lines(printed)}{mean}.",
        "ms",
        "step",
        windows.step.astype(np.float64),
        tuple(parts),
        epoch_starts(windows),
        tuple((float(change.step), change_text(change)) for change in printed.changes),
    )


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
