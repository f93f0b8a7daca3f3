"""The tables that are made for 80 columns: the step as bars, the ranks that matter, the fixes."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.entries import CauseEntry
from stallscope.charts.charts import waiting_part
from stallscope.formatting.numbers import NOT_MEASURED, amount, percent
from stallscope.formatting.plain import plain
from stallscope.text.fixes import speedup, speedup_interval
from stallscope.text.gains import answers, gains
from stallscope.text.step_figures import StepFigures

from ..document import Bar, Cell, Table, Text
from .contents import ranks_that_matter
from .tables import cause_table, rank_cells, step_unit

_MOST_GAINS = 4
_MOST_RANKS = 8
_MOST_HOST = 16


def step_bars(analysis: Analysis) -> Sequence[Table | Text]:
    """Return the step by cause as bars whose shaded end is waiting for slow ranks."""
    step, figures = analysis.step, StepFigures.of(analysis)
    if step is None or figures is None:
        mean = "" if step is None else f"; a step takes {amount(step.mean, 'ms', step.ci95)}"
        return [Text(f"Stages of the steps: not measured{mean}")]
    unit = step_unit(analysis)
    largest = max(1e-12, *(entry.ms for entry in analysis.by_cause))
    rows = [
        (title, _bar(entry, largest), f"{ms} {unit}", share, _difference(others))
        for entry, (title, ms, share, _, *others) in zip(
            analysis.by_cause, cause_table(analysis).rows, strict=False
        )
    ]
    columns = ("", "", "", "", "" if analysis.baseline is None else "difference")
    title = f"Step time: {amount(step.mean, 'ms', step.ci95)}"
    table = Table(title, columns, tuple(rows), words=frozenset({0, 1}))
    waiting = analysis.entry("imbalance")
    if waiting is None or analysis.run.size == 1:
        return [table]
    waits = figures.causes.amount(figures.waits.total, waiting.ci95_ms)
    return [table, Text(f"▒ waiting for slow ranks (imbalance): {waits}", note=True)]


def _bar(entry: CauseEntry, largest: float) -> Cell:
    parts = [(entry.name, entry.ms / largest)]
    return Cell("", bar=Bar(parts, shaded=waiting_part(entry) / largest))


def _difference(cells: Sequence[str]) -> str:
    """Return the difference to the baseline without its interval, for which there is no room."""
    return cells[1].partition(" ±")[0] if cells else ""


def ranks_that_matter_table(analysis: Analysis) -> Table | None:
    """Return the stages of the named ranks, otherwise of the latest; None for one rank."""
    title, ranks = ranks_that_matter(analysis)
    if analysis.run.size == 1 or not ranks:
        return None
    unit = step_unit(analysis)
    rows = []
    cells = rank_cells(analysis, ranks)
    for rank, (own_input, compute, _, waits, _) in zip(ranks, cells, strict=True):
        stages = [
            ms if ms == NOT_MEASURED else f"{ms} {unit}" for ms in (own_input, compute, waits)
        ]
        late = "" if rank.critical_share is None else percent(rank.critical_share)
        rows.append((str(rank.rank), _clipped(plain(rank.host)), *stages, late))
    return Table(
        title,
        ("rank", "host", "input", "compute", "waits", "last in"),
        tuple(rows),
        words=frozenset({1}),
        most={"terminal": _MOST_RANKS},
    )


def _clipped(host: str) -> str:
    return host if len(host) <= _MOST_HOST else f"{host[: _MOST_HOST - 1]}…"


def fixes_table(analysis: Analysis) -> Table | None:
    """Return the speed-up of each fix and of each question; None without any."""
    rows = tuple(
        (gain.title, speedup(gain.what_if), speedup_interval(gain.what_if))
        for gain in (*gains(analysis)[:_MOST_GAINS], *answers(analysis))
    )
    return Table("Potential gains", ("", "", ""), rows) if rows else None
