"""The sentences and tables on two runs: the changes from A to B, and unknown figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import isclose
from typing import Any

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import Change, Comparison, SameWork
from stallscope.analysis.findings.step_amounts import Amount
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Interval,
    exact,
    faster_between,
    percent,
    said_as_share,
    share_saved,
    significant,
)
from stallscope.formatting.plain import plain
from stallscope.formatting.sums import SumColumn
from stallscope.run import Run
from stallscope.text.figure_words import pauses_in_words
from stallscope.text.job_words import epoch_figures, throughput
from stallscope.text.step_figures import StepFigures
from stallscope.text.verdicts import short_verdict
from stallscope.text.vocabulary import TITLES

from ..document import NOTHING, Table

#: Below every table of changes: when a difference is more than noise.
NOISE = (
    "More than noise: the difference is outside of an interval that all figures of two equal runs "
    "keep together in 99.8% of pairs. The interval covers chance from step to step. Only further runs "
    "show how much one start of a job differs from the next."
)
_SAME_RUN = "The same run twice"
# A log can record a fact of any length.
_LONGEST_FACT = 200
# Reports as files show all facts.
_MOST_FACTS = 12
_REAL = {True: "yes", False: "no", None: "too few steps"}
# Replaces the table of differing facts if there are none.
_NOTHING_ELSE = (
    "No other difference: the runs recorded the same model, settings, versions and hosts."
)
_NOTHING_RECORDED = "These logs record neither settings nor versions that could differ."


def outcome(comparison: Comparison) -> tuple[str, str]:
    """Return the result of the comparison: a headline and a sentence."""
    if comparison.same_run:
        return _SAME_RUN, "A and B are one run: nothing can differ."
    step = comparison.step
    if step is None:
        return "Not comparable", "One run has no measured steps."
    if comparison.same_work is not None:
        return _of_same_work(comparison, comparison.same_work)
    by = step.by
    first, second = (exact(mean.value, "ms", mean.ci95) for mean in (step.first, step.second))
    times = f"{first} in A, {second} in B"
    if step.is_real is None:
        return "Too few steps to tell", f"A step takes {times}; neither figure is certain."
    if not step.is_real:
        return "No difference beyond noise", f"A step takes {times}.{_changed_parts(comparison)}"
    slower = by.value > 0
    shown = SumColumn.of([step.first.value], step.first.value, step.first.ci95)
    # The difference of both figures as printed, like in the table.
    change = shown.in_same_digits([step.second.value]).less(shown)
    size = change.amount(abs(change.total), by.ci95)
    return (
        _changed_steps(step),
        f"A step takes {times}: {size} {'more' if slower else 'less'}.{_most(comparison, slower)}",
    )


def _of_same_work(comparison: Comparison, work: SameWork) -> tuple[str, str]:
    """Return the result where steps hold different amounts: a headline and a sentence."""
    step, speedup, unit = work.changes.step, work.speedup, work.unit
    is_real = None if step is None else step.is_real
    if comparison.step is None or is_real is None:
        return "Too few steps to tell", f"No figure per {unit} is certain."
    steps = comparison.step.first, comparison.step.second
    first, second = (exact(mean.value, "ms", mean.ci95) for mean in steps)
    held = _of_a_rank(work.first, comparison.first), _of_a_rank(work.second, comparison.second)
    times = f"A step takes {first} in A, with {held[0]} per rank, {second} in B, with {held[1]}"
    factor = f"{significant(speedup.value)}×{_interval(speedup.value, speedup.ci95)}"
    sentence = f"{times}. Throughput per {unit} of B over A's: {factor}."
    if not is_real:
        return f"No difference per {unit} beyond noise", f"{sentence}{_changed_parts(comparison)}"
    faster, times_as_fast = ("B", speedup.value) if speedup.value > 1 else ("A", 1 / speedup.value)
    title = f"{faster} is {significant(times_as_fast)}× as fast per {unit}"
    most = _most(comparison, slower=speedup.value < 1, of_what="the difference")
    return title, f"{sentence}{most}"


def _of_a_rank(amount: Amount, run: Analysis) -> str:
    """Write how much a rank trains in a step: 2,048 tokens."""
    value = amount.per_step.value / run.run.size
    is_whole = isclose(value, round(value))
    return f"{f'{value:,.0f}' if is_whole else significant(value)} {amount.unit}s"


def _changed_steps(step: Change) -> str:
    before, after, by = step.first.value, step.second.value, abs(step.by.value)
    if before > 0 and said_as_share(after / before, None):
        return f"A's steps are {percent(by / after)} shorter"
    share = f"{percent(by / before)} " if before else ""
    return f"B's steps are {share}{'longer' if after > before else 'shorter'}"


def compared_throughput(comparison: Comparison) -> str:
    """Compare B's throughput with A's, with the interval; empty if it is not known, or told already.

    A factor that is too large to say anything is the share of time that each sample takes less.
    """
    ratio = comparison.speedup
    if ratio is None or comparison.same_run or comparison.same_work is not None:
        return ""
    value, ci95 = ratio.value, ratio.ci95
    if value > 0 and said_as_share(1 / value, None):
        inverse = (1 / ci95[1], 1 / ci95[0]) if ci95 is not None and ci95[0] > 0 else None
        return _less_time(1 / value, inverse, "A")
    if said_as_share(value, ci95):
        return _less_time(value, ci95, "B")
    return f"Throughput of B over A's: {significant(value)}×{_interval(value, ci95)}."


def _less_time(speedup: float, ci95: Interval | None, faster_run: str) -> str:
    saved = percent(share_saved(speedup))
    return f"Each sample takes {saved} less time in {faster_run}{_interval(speedup, ci95)}."


def _interval(speedup: float, ci95: Interval | None) -> str:
    return "" if ci95 is None else f" (95% interval: {faster_between(speedup, ci95)})"


def caveats(comparison: Comparison) -> list[str]:
    """List the reasons to be careful with the figures of these two runs."""
    if comparison.same_run:
        return []
    return [
        *_different_sizes(comparison),
        *_of_run("A", comparison.first),
        *_of_run("B", comparison.second),
    ]


def ranks_of(analysis: Analysis) -> int | None:
    """Return the number of ranks; None if logs of epochs do not contain it."""
    unknown = analysis.epoch_times is not None and analysis.run.fact("size") is None
    return None if unknown else analysis.run.size


def started(run: Run) -> str:
    """Return when a run began, to the minute."""
    return f"{run.started_at:%Y-%m-%d %H:%M}" if run.started_at else NOTHING


def fact_title(name: str) -> str:
    """Return a fact's name for people: ``versions keras``, ``NCCL_ALGO``."""
    whole, _, part = plain(name).partition(".")
    return part if whole == "settings" else f"{whole} {part}".replace("_", " ").strip()


def fact_value(value: Any) -> str:
    """Return a fact of any type on one line."""
    if value is None:
        return "not recorded"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 1000:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return plain(text)[:_LONGEST_FACT]


def _most(comparison: Comparison, slower: bool, of_what: str = "it") -> str:
    """Name the entry that changed most, if it changed in the direction of the step."""
    changes = comparison.fair
    largest = changes.largest
    if largest is None or (largest.by.value > 0) != slower:
        return ""
    step = 0.0 if changes.step is None else changes.step.by.value
    is_most = abs(largest.by.value) > abs(step) / 2
    if not is_most and not changes.by_cause:
        # The other parts are unknown.
        return ""
    part = "Most" if is_most else "The largest part"
    return f" {part} of {of_what} is {TITLES[largest.name].lower()}."


def _changed_parts(comparison: Comparison) -> str:
    by_cause = comparison.fair.by_cause
    changed = [TITLES[change.name].lower() for change in by_cause if change.is_real]
    return f" Parts that changed: {', '.join(changed)}." if changed else ""


def _different_sizes(comparison: Comparison) -> Iterator[str]:
    first, second = comparison.first.run, comparison.second.run
    if first.size != second.size and None not in (
        ranks_of(comparison.first),
        ranks_of(comparison.second),
    ):
        yield (
            f"A ran on {counted(first.size, 'rank')} and B on {second.size:,}: throughput counts "
            "all ranks, and the slowest of more ranks is later by chance."
        )


def _of_run(letter: str, analysis: Analysis) -> Iterator[str]:
    run, missing = analysis.run, len(analysis.run.missing_ranks)
    if analysis.printed is not None and not analysis.printed.recorded:
        yield f"Only whole steps are compared. {letter}'s are {run.fact('known_from')}."
        pauses = pauses_in_words(analysis.printed)
        if pauses:
            yield f"Not in {letter}'s steps: {pauses}."
    elif analysis.epoch_times is not None:
        known = "; ".join(f"{title.lower()}: {text}" for title, text in epoch_figures(analysis))
        yield f"{letter}'s logs record epochs but no steps; {known}."
    elif not analysis.entries and analysis.step is not None:
        yield f"Only whole steps are compared. {letter}: {analysis.why_no_stages}"
    # One rank prints the steps of all.
    if missing and (analysis.printed is None or analysis.printed.recorded):
        yield f"{letter}: {missing:,} of {counted(run.size, 'rank')} left no log."


def runs_table(comparison: Comparison) -> Table:
    """Return the table of both runs with their verdicts."""
    return table_of_runs(("A", "B"), (comparison.first, comparison.second))


def table_of_runs(labels: Sequence[str], analyses: Sequence[Analysis]) -> Table:
    """Return the table of runs with their verdicts; the labels stand before them."""
    ranks = map(ranks_of, analyses)
    return Table.of(
        "The runs",
        {
            "": labels,
            "Run": [
                f"{analysis.run.name}{' (synthetic data)' if analysis.run.synthetic else ''}"
                for analysis in analyses
            ],
            "Started": [started(analysis.run) for analysis in analyses],
            "Ranks": [NOTHING if count is None else f"{count:,}" for count in ranks],
            "Steps": [
                f"{analysis.steps:,}" if analysis.steps else NOTHING for analysis in analyses
            ],
            "Throughput": [throughput(analysis) or NOT_MEASURED for analysis in analyses],
            "Goodput": [
                NOTHING if analysis.goodput is None else percent(analysis.goodput.fraction)
                for analysis in analyses
            ],
            "Verdict": [short_verdict(analysis.bottleneck) for analysis in analyses],
        },
        words=frozenset({1, 2, 7}),
        without={"terminal": (2, 4)},
    )


def changes_table(comparison: Comparison) -> Table | None:
    """Return the changes by cause, in the step and in waiting; None if none is known.

    Where steps hold different amounts of work, B's times are those for as much as A's steps hold.
    """
    changes, work = comparison.fair, comparison.same_work
    if changes.step is None or comparison.same_run:
        return None
    factor = 1.0 if work is None else work.factor
    step_figures = StepFigures.of_both(comparison.first, comparison.second, factor)
    first, second = (
        _steps(changes.step)
        if step_figures is None
        else (figures.causes for figures in step_figures)
    )
    rows = [
        _change_row(TITLES[change.name], change, first, figures)
        for change, *figures in zip(changes.by_cause, first.parts, second.parts, strict=False)
    ]
    rows.append(_change_row("Step", changes.step, first, (first.total, second.total)))
    wait = changes.input_wait
    if step_figures is None and wait is not None:
        waits = [first.in_same_digits([mean.value]).total for mean in (wait.first, wait.second)]
        rows.append(_change_row("of it: waiting for data", wait, first, waits))
    imbalance = next((entry for entry in changes.entries if entry.name == "imbalance"), None)
    if step_figures is not None and imbalance is not None:
        waits = [figures.waits.total for figures in step_figures]
        rows.append(_change_row("of it: waiting for slow ranks", imbalance, first, waits))
    of_b = "B" if work is None else "B for A's work"
    return Table(
        "What changed" if work is None else f"What changed per {work.unit}",
        (
            "Cause",
            *(f"{title}, {first.scale.unit}" for title in ("A", of_b, "B − A")),
            "More than noise?",
        ),
        tuple(rows),
        emphasised=frozenset({len(changes.by_cause)}),
        note=NOISE if work is None else f"{_scaled_to_a(comparison)} {NOISE}",
    )


def _scaled_to_a(comparison: Comparison) -> str:
    """Say for how much work B's times are; empty where both runs' steps hold as much."""
    work = comparison.same_work
    if work is None:
        return ""
    return (
        f"B's times are for {_of_a_rank(work.first, comparison.first)}, as a rank's step in A has."
    )


def _steps(step: Change) -> tuple[SumColumn, SumColumn]:
    """Return both runs' steps as printed where one run has no stages."""
    first = SumColumn.of([step.first.value], step.first.value, step.first.ci95)
    return first, first.in_same_digits([step.second.value])


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


def nothing_else(comparison: Comparison) -> str:
    """Say why there is no table of facts that differ."""
    # Logs of epochs or printed steps have no facts of the recorder.
    unknown = [run.epoch_times is not None for run in (comparison.first, comparison.second)]
    return _NOTHING_RECORDED if all(unknown) else _NOTHING_ELSE


def facts_table(comparison: Comparison) -> Table | None:
    """Return the recorded facts that differ; None if none does."""
    if not comparison.differences:
        return None
    facts = comparison.differences
    return Table.of(
        "Other differences",
        {
            "Fact": [fact_title(fact.name) for fact in facts],
            "A": [fact_value(fact.first) for fact in facts],
            "B": [fact_value(fact.second) for fact in facts],
        },
        words=frozenset({0, 1, 2}),
        note="Recorded facts that differ between the runs.",
        most={"terminal": _MOST_FACTS},
    )
