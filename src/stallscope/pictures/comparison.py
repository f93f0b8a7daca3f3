"""Two runs side by side, as pictures: both ledgers, and what leads from one step to the other."""

from __future__ import annotations

from stallscope.analysis.comparison import Change, Comparison
from stallscope.wording.numbers import amount

from .charts import Bar, Segment, StackedBars, Waterfall


def ledgers_chart(found: Comparison) -> StackedBars | None:
    """Where a step's time goes in A and in B. None where one of them has no stages."""
    if not found.entries or found.step is None:
        return None
    bars = tuple(
        Bar(letter, tuple(_segment(change, letter) for change in found.entries)) for letter in "AB"
    )
    return StackedBars(
        "Where a step's time goes",
        f"A step takes {amount(found.step.first.value, 'ms')} in A and "
        f"{amount(found.step.second.value, 'ms')} in B.",
        "ms",
        bars,
    )


def changes_chart(found: Comparison) -> Waterfall | None:
    """From A's step to B's. None where one of them has no stages."""
    if not found.entries or found.step is None:
        return None
    changes = tuple(Segment(one.name, one.by.value, one.by.ci95) for one in found.entries)
    return Waterfall(
        "From A to B",
        "What each entry of the ledger adds to A's step, or takes from it.",
        "ms",
        ("A", found.step.first.value),
        changes,
        ("B", found.step.second.value),
    )


def _segment(change: Change, letter: str) -> Segment:
    mean = change.first if letter == "A" else change.second
    return Segment(change.name, mean.value, mean.ci95)
