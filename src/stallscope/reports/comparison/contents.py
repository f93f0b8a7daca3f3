"""What reports on two runs say in all formats, as tables."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import Change, Comparison
from stallscope.pictures.charts import TITLES
from stallscope.wording.cells import Cells
from stallscope.wording.numbers import rate
from stallscope.wording.verdicts import short_verdict

from ..tables import NOTHING, Table
from .sentences import NOISE, fact_title, fact_value, ranks_of

_REAL = {True: "yes", False: "no", None: "too few steps"}


def runs_table(found: Comparison) -> Table:
    """Which runs A and B are, and what holds each of them back."""
    return Table(
        "The runs",
        ("", "Run", "Began", "Ranks", "Steps", "Throughput", "Verdict"),
        (_run_row("A", found.first), _run_row("B", found.second)),
        words=frozenset({1, 2, 6}),
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
    """What changed in each entry of the ledger, and in the step. None where nothing can be told."""
    if found.step is None or found.same_run:
        return None
    changes = [*found.entries, found.step]
    cells = Cells.for_all([found.step.first.value, found.step.second.value])
    unit = cells.unit
    return Table(
        "What changed",
        ("Entry", f"A, {unit}", f"B, {unit}", f"B − A, {unit}", "More than noise?"),
        tuple(_change_row(change, cells) for change in changes),
        emphasised=frozenset({len(changes) - 1}),
        note=NOISE,
    )


def _change_row(change: Change, cells: Cells) -> tuple[str, ...]:
    by = change.by
    return (
        TITLES.get(change.name, "Step"),
        cells.plain(change.first.value),
        cells.plain(change.second.value),
        cells.excess(by.value, by.ci95),
        _REAL[change.is_real],
    )


def facts_table(found: Comparison) -> Table | None:
    """What the runs recorded of themselves, where it is not the same. None where all of it is."""
    if not found.differences:
        return None
    return Table(
        "What else differs",
        ("Fact", "A", "B"),
        tuple(
            (fact_title(one.name), fact_value(one.first), fact_value(one.second))
            for one in found.differences
        ),
        words=frozenset({0, 1, 2}),
        note="What the runs recorded of themselves, where it is not the same.",
    )


#: What is said in place of that table.
NOTHING_ELSE = "Of model, settings, versions and hosts the runs recorded the same."
