"""The tables on two runs."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis import Analysis
from stallscope.analysis.history.comparison import Change, Comparison
from stallscope.charts.charts import TITLES
from stallscope.formatting.numbers import rate
from stallscope.formatting.sums import SumColumn
from stallscope.text.step_figures import StepFigures
from stallscope.text.verdicts import short_verdict

from ..document import NOTHING, Table
from .sentences import NOISE, fact_title, fact_value, ranks_of

# The files have all of them.
_MOST_FACTS = 12
_REAL = {True: "yes", False: "no", None: "too few steps"}


def runs_table(found: Comparison) -> Table:
    """Return the table of both runs with their verdicts."""
    return Table(
        "The runs",
        ("", "Run", "Began", "Ranks", "Steps", "Throughput", "Verdict"),
        (_run_row("A", found.first), _run_row("B", found.second)),
        words=frozenset({1, 2, 6}),
        without={"terminal": (2, 4)},
    )


def _run_row(letter: str, analysis: Analysis) -> tuple[str, ...]:
    run = analysis.run
    data = " (synthetic data)" if run.synthetic else ""
    ranks = ranks_of(analysis)
    return (
        letter,
        f"{run.name}{data}",
        f"{run.started_at:%Y-%m-%d %H:%M}" if run.started_at else NOTHING,
        NOTHING if ranks is None else f"{ranks:,}",
        f"{analysis.steps:,}" if analysis.steps else NOTHING,
        rate(analysis.samples_per_second),
        short_verdict(analysis.bottleneck),
    )


def changes_table(found: Comparison) -> Table | None:
    """Return the changes by cause, in the step and in imbalance; None if none is known."""
    if found.step is None or found.same_run:
        return None
    both = StepFigures.of_both(found.first, found.second)
    first, second = _steps(found.step) if both is None else (one.causes for one in both)
    rows = [
        _change_row(TITLES[change.name], change, first, figures)
        for change, *figures in zip(found.by_cause, first.parts, second.parts, strict=False)
    ]
    rows.append(_change_row("Step", found.step, first, (first.total, second.total)))
    imbalance = next((one for one in found.entries if one.name == "imbalance"), None)
    if both is not None and imbalance is not None:
        waits = [one.waits.total for one in both]
        rows.append(_change_row("of it: imbalance", imbalance, first, waits))
    return Table(
        "What changed",
        (
            "Cause",
            *(f"{title}, {first.scale.unit}" for title in ("A", "B", "B − A")),
            "More than noise?",
        ),
        tuple(rows),
        emphasised=frozenset({len(found.by_cause)}),
        note=NOISE,
    )


def _steps(step: Change) -> tuple[SumColumn, SumColumn]:
    """Return both runs' steps as printed where one run has no stages."""
    first = SumColumn.of([step.first.value], step.first.value, step.first.ci95)
    return first, first.beside([step.second.value])


def _change_row(
    title: str, change: Change, column: SumColumn, figures: Sequence[float]
) -> tuple[str, ...]:
    first, second = figures
    return (
        title,
        column.text(first),
        column.text(second),
        column.signed(column.of_rounded([second - first]).total, change.by.ci95),
        _REAL[change.is_real],
    )


def facts_table(found: Comparison) -> Table | None:
    """Return the recorded facts that differ; None if none does."""
    if not found.differences:
        return None
    return Table(
        "Other differences",
        ("Fact", "A", "B"),
        tuple(
            (fact_title(one.name), fact_value(one.first), fact_value(one.second))
            for one in found.differences
        ),
        words=frozenset({0, 1, 2}),
        note="Facts that the runs recorded about themselves, where they differ.",
        most={"terminal": _MOST_FACTS},
    )


#: Stands in place of that table.
NOTHING_ELSE = (
    "No other difference: the runs recorded the same model, settings, versions and hosts."
)
