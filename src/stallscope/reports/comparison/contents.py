"""The tables on two runs."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis.history.comparison import Change, Comparison
from stallscope.charts.charts import TITLES
from stallscope.formatting.numbers import rate
from stallscope.formatting.sums import SumColumn
from stallscope.text.step_figures import StepFigures
from stallscope.text.verdicts import short_verdict

from ..document import NOTHING, Table
from .sentences import NOISE, fact_title, fact_value, ranks_of, started

# The files have all of them.
_MOST_FACTS = 12
_REAL = {True: "yes", False: "no", None: "too few steps"}


def runs_table(found: Comparison) -> Table:
    """Return the table of both runs with their verdicts."""
    both = (found.first, found.second)
    ranks = map(ranks_of, both)
    return Table.of(
        "The runs",
        {
            "": ("A", "B"),
            "Run": [
                f"{one.run.name}{' (synthetic data)' if one.run.synthetic else ''}" for one in both
            ],
            "Began": [started(one.run) for one in both],
            "Ranks": [NOTHING if count is None else f"{count:,}" for count in ranks],
            "Steps": [f"{one.steps:,}" if one.steps else NOTHING for one in both],
            "Throughput": [rate(one.samples_per_second) for one in both],
            "Verdict": [short_verdict(one.bottleneck) for one in both],
        },
        words=frozenset({1, 2, 6}),
        without={"terminal": (2, 4)},
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
    facts = found.differences
    return Table.of(
        "Other differences",
        {
            "Fact": [fact_title(one.name) for one in facts],
            "A": [fact_value(one.first) for one in facts],
            "B": [fact_value(one.second) for one in facts],
        },
        words=frozenset({0, 1, 2}),
        note="Facts that the runs recorded about themselves, where they differ.",
        most={"terminal": _MOST_FACTS},
    )


#: Stands in place of that table.
NOTHING_ELSE = (
    "No other difference: the runs recorded the same model, settings, versions and hosts."
)
