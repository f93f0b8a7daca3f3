"""Charts of two runs: both steps by cause, and the changes from one to the other."""

from __future__ import annotations

from stallscope.analysis.history.comparison import Comparison
from stallscope.formatting.numbers import exact
from stallscope.text.step_figures import StepFigures

from .charts import Segment, StackedBars, Waterfall, cause_bar


def ledgers_chart(found: Comparison) -> StackedBars | None:
    """Chart the step by cause in A and in B. None without stages in both."""
    figures = StepFigures.of_both(found.first, found.second)
    if found.step is None or figures is None:
        return None
    a, b = figures
    first, second = (
        exact(one.value, "ms", one.ci95) for one in (found.step.first, found.step.second)
    )
    return StackedBars(
        "Step time by cause",
        f"A step takes {first} in A and {second} in B.",
        "ms",
        (cause_bar("A", found.first, a), cause_bar("B", found.second, b)),
    )


def changes_chart(found: Comparison) -> Waterfall | None:
    """Chart the changes from A's step to B's. None without stages in both."""
    figures = StepFigures.of_both(found.first, found.second)
    if found.step is None or figures is None:
        return None
    a, b = figures
    return Waterfall(
        "From A to B",
        "What each cause adds to A's step or saves.",
        "ms",
        ("A", found.step.first.value),
        tuple(Segment(one.name, one.by.value, one.by.ci95) for one in found.by_cause),
        ("B", found.step.second.value),
        b.causes.less(a.causes),
        a.causes.total,
    )
