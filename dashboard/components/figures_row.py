"""The key figures of a run."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc

from stallscope.analysis import Analysis
from stallscope.formatting.numbers import NOT_MEASURED, amount, exact, interval, rate, share


def figures_row(analysis: Analysis) -> Any:
    """Show step time, its tail, throughput, and the loss against the baseline."""
    step = analysis.step
    figures: list[tuple[str, str, str | None]] = [
        (
            "Step time",
            NOT_MEASURED if step is None else exact(step.mean, "ms", step.ci95),
            None if step is None else f"95% interval: {interval(step.ci95, 'ms')}",
        ),
        (
            "Slow steps",
            amount(None if step is None else step.p95, "ms"),
            "one step in twenty is slower",
        ),
        ("Throughput", rate(analysis.samples_per_second), "of all ranks together"),
    ]
    if analysis.baseline is not None:
        figures.append(_against_baseline(analysis.gap))
    return dmc.SimpleGrid(
        [_figure(*figure) for figure in figures],
        cols={"base": 2, "sm": len(figures)},
        spacing="md",
    )


def _against_baseline(gap: float | None) -> tuple[str, str, str]:
    if gap is not None and gap < 0:
        return "Gained on the baseline", share(-gap), "of its throughput"
    return "Lost against the baseline", share(gap), "of its throughput"


def _figure(label: str, value: str, note: str | None) -> Any:
    measured = value != NOT_MEASURED
    return dmc.Card(
        [
            dmc.Text(label, size="sm", c="dimmed"),
            dmc.Text(value, className="figure" if measured else "figure missing"),
            dmc.Text(note, size="xs", c="dimmed") if note and measured else None,
        ],
        withBorder=True,
        padding="sm",
    )
