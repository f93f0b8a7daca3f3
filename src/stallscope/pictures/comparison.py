"""Two runs side by side, as pictures: both steps by cause, and what leads from one to the other."""

from __future__ import annotations

from stallscope.analysis.comparison import Comparison
from stallscope.wording.numbers import exact
from stallscope.wording.step_figures import StepFigures

from .charts import Segment, StackedBars, Waterfall, cause_bar


def ledgers_chart(found: Comparison) -> StackedBars | None:
    """A step by cause in A and in B. None where one of them has no stages."""
    figures = StepFigures.of(found.first)
    others = None if figures is None else figures.beside(found.second)
    if found.step is None or figures is None or others is None:
        return None
    first, second = (
        exact(one.value, "ms", one.ci95) for one in (found.step.first, found.step.second)
    )
    return StackedBars(
        "Where a step's time goes",
        f"A step takes {first} in A and {second} in B.",
        "ms",
        (cause_bar("A", found.first, figures), cause_bar("B", found.second, others)),
    )


def changes_chart(found: Comparison) -> Waterfall | None:
    """From A's step to B's. None where one of them has no stages."""
    figures = StepFigures.of(found.first)
    others = None if figures is None else figures.beside(found.second)
    if found.step is None or figures is None or others is None:
        return None
    return Waterfall(
        "From A to B",
        "What each cause adds to A's step, or takes from it.",
        "ms",
        ("A", found.step.first.value),
        tuple(Segment(one.name, one.by.value, one.by.ci95) for one in found.by_cause),
        ("B", found.step.second.value),
        others.causes.less(figures.causes),
        figures.causes.total,
    )
