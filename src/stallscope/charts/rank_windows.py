"""Chart the step time of each rank over the run, from printed lines or another tool's log."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.analysis.views.lateness_map import rows_of_ranks
from stallscope.analysis.views.window_map import MOST_ROWS, WindowMap, window_map
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount

from .heat_map import HeatMap, HeatMapRow, HeatWords, label_of
from .step_time import change_text, epoch_starts

# Nearly all cells are between the weakest and the strongest colour.
_NEARLY_LEAST, _NEARLY_MOST = 2, 95
# The least difference between them, as a share of the step: noise must not look like a fault.
_FULL_SHARE = 0.25
_WORDS = HeatWords("per step on average", "slowest")


def printed_ranks_chart(analysis: Analysis) -> HeatMap | None:
    """Chart the step time of each rank over the run, without warm-up. None for one rank."""
    printed = analysis.printed
    if printed is None or len(printed.ranks) < 2:
        return None
    host_of = {log.rank: str(log.facts.get("host") or "") for log in analysis.run.logs}
    hosts = [host_of.get(rank.rank, "") for rank in printed.ranks]
    rows = rows_of_ranks(hosts, most=MOST_ROWS)
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
    return f"Means over all steps are from {low} to {high}."
