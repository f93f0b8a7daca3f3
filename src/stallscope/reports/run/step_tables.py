"""The tables on a run's step: by cause, as a ledger, against the baselines, and its distribution."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.findings.step_causes import StepCause
from stallscope.analysis.gains.baseline import Decomposition
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted, ranges
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Cells,
    amount,
    percent,
    share,
)
from stallscope.formatting.sums import SumColumn
from stallscope.text.baselines import decomposed, input_name
from stallscope.text.step_figures import StepFigures
from stallscope.text.vocabulary import entry_title
from stallscope.words import CAUSES, STAGES, StepCauseCode

from ..document import NOTHING, Table


def cause_table(analysis: Analysis) -> Table:
    """Return the step by cause, and how long ranks wait for the slowest in each stage."""
    unit = step_unit(analysis)
    columns = ["Cause", f"{unit} per step", "Share", f"Waiting, {unit}"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {unit}", f"Difference, {unit}"]
    rows = _sum_rows(analysis, CAUSES, by_cause=True)
    waits = _waits(analysis)
    return Table(
        "Step time by cause",
        tuple(columns),
        tuple((*row[:3], wait, *row[3:]) for row, wait in zip(rows, waits, strict=True)),
        emphasised=frozenset({len(CAUSES)}),
        note="Stages of the rank that is last in each step. Waiting: how much longer its stage is than "
        "the typical rank's, which waits for it. ± is the 95% interval of the mean.",
    )


def ledger_table(analysis: Analysis) -> Table:
    """Return the step by entry of the ledger, next to the baselines' entries."""
    unit = step_unit(analysis)
    columns = ["Entry", f"{unit} per step", "Share"]
    if analysis.baseline is not None:
        columns += [f"Baseline, {unit}", f"Difference, {unit}"]
    rows = _sum_rows(analysis, ENTRIES, by_cause=False)
    if analysis.single is not None:
        columns.append(f"On one rank, {unit}")
        rows = [(*row, cell) for row, cell in zip(rows, _on_one_rank(analysis), strict=True)]
    return Table(
        "Step time of the typical rank",
        tuple(columns),
        tuple(rows),
        emphasised=frozenset({len(ENTRIES)}),
        note="The ledger: the typical rank's stages, and how long it waits for the slowest. They add up "
        "to the step. ± is the 95% interval of the mean over steady steps.",
    )


def step_unit(analysis: Analysis) -> str:
    """Return the unit in which the step is printed."""
    return Cells.for_all([_mean(analysis)]).unit


def _sum_rows(analysis: Analysis, names: Sequence[str], *, by_cause: bool) -> list[tuple[str, ...]]:
    """Return the rows of a ledger and its total: title, time, share, baseline's time, difference."""
    figures, step = StepFigures.of(analysis), analysis.step
    titles = [entry_title(name, analysis) for name in names]
    if figures is None or step is None:
        none = (NOTHING,) * (1 + 2 * (analysis.baseline is not None))
        rows = [(title, NOT_MEASURED, *none) for title in titles]
        return [*rows, _unmeasured_total(analysis)]
    column = figures.causes if by_cause else figures.entries
    entries = [(analysis.cause if by_cause else analysis.entry)(name) for name in names]
    rows = [
        (title, NOT_MEASURED, NOTHING)
        if entry is None
        else (title, column.text(part, entry.ci95_ms), percent(entry.share))
        for title, part, entry in zip(titles, column.parts, entries, strict=True)
    ]
    rows.append(("Step", column.text(column.total, step.ci95), "100%"))
    if analysis.baseline is None:
        return rows
    base = figures.in_same_digits(analysis.baseline)
    if base is None:
        total = _unmeasured_total(analysis)
        return [*((*row, NOT_MEASURED, NOT_MEASURED) for row in rows[:-1]), total]
    usual = base.causes if by_cause else base.entries
    more = column.less(usual)
    differences = [
        NOT_MEASURED if entry is None else more.signed(part, entry.excess_ci95_ms)
        for part, entry in zip(more.parts, entries, strict=True)
    ]
    differences.append(more.signed(more.total, _loss(analysis).ci95))
    return [
        (*row, usual.text(its), difference)
        for row, its, difference in zip(rows, (*usual.parts, usual.total), differences, strict=True)
    ]


def _unmeasured_total(analysis: Analysis) -> tuple[str, ...]:
    """Return the step's row if its parts, or those of the baseline's step, were not measured."""
    step, loss = analysis.step, _loss(analysis)
    if step is None:
        return ("Step", NOT_MEASURED, *[NOTHING] * (1 + 2 * (analysis.baseline is not None)))
    column = SumColumn.of([step.mean], step.mean, step.ci95)
    row = ["Step", column.text(column.total, step.ci95), "100%"]
    base = None if analysis.baseline is None else _mean(analysis.baseline)
    if base is not None:
        usual = column.in_same_digits([base])
        more = column.less(usual)
        row += [usual.text(usual.total), more.signed(more.total, loss.ci95)]
    elif analysis.baseline is not None:
        row += [NOT_MEASURED, NOT_MEASURED]
    return tuple(row)


def _on_one_rank(analysis: Analysis) -> list[str]:
    """Return the ledger of the run on one rank, and its step."""
    figures = StepFigures.of(analysis)
    single = None if figures is None else figures.in_same_digits(analysis.single)
    if single is None:
        cells = Cells.for_all([_mean(analysis)])
        step = None if analysis.single is None else _mean(analysis.single)
        return [*[NOT_MEASURED] * len(ENTRIES), cells.plain(step)]
    entries = single.entries
    return [entries.text(ms) for ms in (*entries.parts, entries.total)]


def _waits(analysis: Analysis) -> list[str]:
    """Return how long the others wait for each cause, and the imbalance, which is the sum."""
    figures = StepFigures.of(analysis)
    if figures is None:
        return [NOTHING] * (len(CAUSES) + 1)
    waits = figures.waits
    if analysis.run.one_log_of_many:
        return [*[NOT_MEASURED] * len(STAGES), NOTHING, NOT_MEASURED]
    return [*map(waits.text, waits.parts), NOTHING, waits.text(waits.total)]


def _loss(analysis: Analysis) -> Mean:
    """Return how much longer the step is than the baseline's."""
    step = analysis.step
    baseline = None if analysis.baseline is None else analysis.baseline.step
    if step is None or baseline is None:
        return Mean(nan, None)
    return Mean(step.mean, step.ci95).minus(Mean(baseline.mean, baseline.ci95))


def _mean(analysis: Analysis) -> float | None:
    return None if analysis.step is None else analysis.step.mean


def baselines_table(analysis: Analysis) -> Table | None:
    """Return the losses between one rank, all ranks on synthetic data, and this run.

    None without stages of both the run and its baseline.
    """
    parts, step_figures = analysis.decomposition, StepFigures.of_both(analysis, analysis.baseline)
    if parts is None or step_figures is None or analysis.step is None:
        return None
    figures, whole = step_figures[0], analysis.step.mean
    runs = (analysis, analysis.baseline, analysis.single)
    steps = [_step_of(run, analysis, figures, whole) for run in runs if run is not None]
    losses = _losses(analysis, parts, *step_figures)
    scale = figures.scale_loss(analysis)
    if parts.scale is not None and scale is not None:
        losses.append(("Lost to scale", parts.scale, scale))
    differences = [
        (title, figures.causes.signed(value, mean.ci95), share_of(mean.value, whole))
        for title, mean, value in losses
    ]
    return Table(
        "Against the baselines",
        ("What", f"{figures.unit} per step", "Of this run's step"),
        (*steps, *differences),
        emphasised=frozenset(range(len(steps))),
        note=f"{decomposed(analysis)} Differences are by cause: those of the rank that is last in "
        f"each step. They add up to the whole: {losses[0][0].lower()}.",
    )


def _losses(
    analysis: Analysis, parts: Decomposition, figures: StepFigures, base: StepFigures
) -> list[tuple[str, Mean, float]]:
    """Return the difference from the baseline with its four parts, which add up as printed."""
    more = figures.causes.less(base.causes)
    communication = base.waits.total + base.part("allreduce")
    return [
        (_whole_loss(analysis), parts.loss, more.total),
        (f"of it: {input_name(analysis)}", parts.input_stall, more.parts[0]),
        ("of it: compute", parts.compute, more.parts[1]),
        ("of it: work between steps", parts.other, more.parts[2]),
        ("of it: exposed allreduce", parts.allreduce, more.parts[3]),
        ("Waiting and allreduce in the baseline", parts.communication, communication),
    ]


def _whole_loss(analysis: Analysis) -> str:
    """Name the difference from the baseline: real data costs it only if nothing else differs."""
    base, match = analysis.baseline, analysis.match
    comparable = match is not None and not match.reasons
    real = comparable and base is not None and base.run.synthetic and not analysis.run.synthetic
    return "Lost to real data" if real else "Difference from the baseline"


def _step_of(
    compared: Analysis, analysis: Analysis, figures: StepFigures, whole: float
) -> tuple[str, str, str]:
    data = "synthetic" if compared.run.synthetic else "real"
    what = "Baseline: step" if compared is analysis.baseline else "Step"
    title = f"{what} on {data} data, {counted(compared.run.size, 'rank')}"
    step = compared.step
    if step is None:
        return (title, NOT_MEASURED, NOTHING)
    return (title, figures.text(figures.rounded(step.mean), step.ci95), share_of(step.mean, whole))


def step_table(analysis: Analysis) -> Table | None:
    """Return the distribution of step times; None without steady steps."""
    if analysis.step is None:
        return None
    step = analysis.step
    rows = (
        ("Mean", amount(step.mean, "ms", step.ci95)),
        ("Median", amount(step.p50, "ms")),
        ("95th percentile", amount(step.p95, "ms")),
        ("99th percentile", amount(step.p99, "ms")),
    )
    return Table("Step times", ("Of steady steps", "Time"), rows)


def share_of(value: float | None, total: float) -> str:
    """Return a part of a total as a percentage."""
    return NOTHING if value is None or not total else percent(value / total)


# -- Causes inside the step ------------------------------------------------------------------------

#: Causes in words.
STEP_CAUSE_TITLES: dict[StepCauseCode, str] = {
    "garbage_collection": "Garbage collection",
    "interpreter": "Waits for Python's lock",
    "saving": "Saves within steps",
    "background_saving": "Saves in the background",
    "background_evaluation": "Evaluations in the background",
    "compilation": "Compilation",
    "unequal_work": "Unequal batches",
    "uneven_routing": "Uneven routing to experts",
    "padding": "Padding",
}


def causes_table(analysis: Analysis) -> Table | None:
    """Return what was noted inside of steps and what it costs; None without a cause."""
    known = analysis.step_causes
    if not known.causes:
        return None
    cells = Cells.for_all([cause.saved_ms.value for cause in known.causes])
    rows = tuple(
        (
            STEP_CAUSE_TITLES[cause.code],
            _whose(cause, analysis),
            NOTHING if cause.count is None else f"{cause.count:,}",
            NOTHING if cause.took_ms is None else amount(cause.took_ms, "ms"),
            cells.mean(cause.saved_ms.value, cause.saved_ms.ci95),
            percent(cause.share),
            share(cause.of_imbalance),
        )
        for cause in known.causes
    )
    explained = ""
    if known.explained is not None:
        explained = (
            f" Together they explain {percent(known.explained)} of the imbalance; the rest is "
            "unexplained."
        )
    saved = f"Saves, {cells.unit} per step"
    return Table(
        "Causes inside the step",
        ("Cause", "Ranks", "Times", "Each", saved, "Of the step", "Of the imbalance"),
        rows,
        words=frozenset({0, 1}),
        note="The steady steps again, without each cause and with all else as it was; for batches and "
        f"experts, with the same work on all ranks.{explained}",
    )


def _whose(cause: StepCause, analysis: Analysis) -> str:
    if not cause.ranks:
        return "in turn"
    return "all" if len(cause.ranks) == len(analysis.ranks) else ranges(cause.ranks)
