"""The step by cause as bars, for formats without charts."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.entries import CauseEntry
from stallscope.charts.charts import waiting_part
from stallscope.formatting.numbers import amount
from stallscope.text.step_figures import StepFigures

from ..document import Bar, Cell, Table, Text
from .tables import cause_table, step_unit


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
