"""Describe stragglers: ranks, stages and costs."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.change_points import ChangePoint
from stallscope.analysis.stragglers.lap_test import enough_to_name, rank_hours, too_few
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.formatting.lists import capitalised, counted, listed
from stallscope.formatting.numbers import amount, exact, percent
from stallscope.words import Pattern

from .step_figures import StepFigures
from .vocabulary import NAMES, NAMES_IN_LISTS

#: Explains the columns, below every table of stragglers.
NOTE = (
    "By how much: over all steps; over the late ones where lateness is intermittent or varies from step "
    "to step. Share of steps: those in which it is last to be ready, or late. Costs: what a step would "
    "save without it, on average; they do not add up."
)

_PATTERNS: dict[Pattern, str] = {
    "persistent": "all the time",
    "ramp": "increasing",
    "bursts": "at times",
    "rotating": "varies from step to step",
}
_CANNOT_TELL = "These logs cannot show which rank is slow"
_WHEN: dict[Pattern, str] = {
    "persistent": " all the time",
    "ramp": " increasingly",
    "bursts": " at times",
    "rotating": "",
}
_LATER: dict[Pattern, str] = {
    "persistent": "takes {by} longer than its peers'",
    "ramp": "takes longer and longer than its peers', by {by} on average",
    "bursts": "takes {by} longer than usual in {share} of steps",
    "rotating": "is {by} later",
}


def who(straggler: Straggler) -> str:
    """Name the ranks: ``rank 3``, ``host b (ranks 2 and 3)``, ``all of dp 1 (ranks 2 and 3)``.

    ``any rank`` if it varies.
    """
    if not straggler.ranks:
        return "any rank"
    ranks = listed("rank", straggler.ranks)
    if straggler.place:
        return f"all of {straggler.place} ({ranks})"
    return f"{listed('host', straggler.hosts)} ({ranks})" if straggler.hosts else ranks


def pattern(straggler: Straggler) -> str:
    """Name the pattern; a rank with more samples than its peers has more work, and is not slower."""
    words = _PATTERNS[straggler.pattern]
    if straggler.work is None:
        return words
    return f"{words}; uneven work: {straggler.work:.2f} times its peers' samples"


def excess(straggler: Straggler) -> str:
    """Write the excess: 12.5 ± 0.3 ms."""
    return amount(straggler.excess_ms.value, "ms", straggler.excess_ms.ci95)


def cost(straggler: Straggler) -> str:
    """Write the cost: 10.9 ± 0.1 ms."""
    return amount(straggler.cost_ms.value, "ms", straggler.cost_ms.ci95)


def waiting(analysis: Analysis) -> tuple[str, str]:
    """Return the page's first sentence, and its evidence or cost."""
    title, text = _headline(analysis)
    run = analysis.run
    missing = run.unknown_ranks
    unsure = analysis.bottleneck.kind == "insufficient_data" or analysis.printed is not None
    if not missing or unsure:
        return title, text
    why = f"their logs are {run.why_unknown}"
    unseen = f"Whether {listed('rank', missing)} came late is not known: {why}."
    return title, f"{text} {unseen}"


def _headline(analysis: Analysis) -> tuple[str, str]:
    steady = analysis.steady
    if analysis.run.size == 1 and analysis.run.size_known:
        return "A single rank does not wait for others", ""
    if steady is None or len(steady.ranks) < 2:
        return _CANNOT_TELL, analysis.why_no_stages
    if analysis.stragglers:
        return _named(analysis)
    if not enough_to_name(steady):
        return _CANNOT_TELL, f"{capitalised(too_few(steady))} to tell a slow rank from chance."
    return "No stragglers: the remaining differences are random", _chance(analysis)


def costs(straggler: Straggler, analysis: Analysis) -> str:
    """Write the cost over the steady steps: 0.32 ± 0.01 h of all ranks."""
    hours = rank_hours(straggler.cost_ms, len(analysis.steady or ()), analysis.run.size)
    return amount(hours.value, "h", hours.ci95)


def change(change: ChangePoint) -> str:
    """Describe a change point: 41.0 → 53.2 ms per step, most of it input (+10.1 ms)."""
    by = amount(abs(change.by_ms), "ms")
    sign = "+" if change.by_ms >= 0 else "−"
    which = "" if change.rank is None else f"; rank {change.rank} is the critical one in most steps"
    most = (
        "" if change.entry is None else f", most of it {NAMES_IN_LISTS[change.entry]} ({sign}{by})"
    )
    return (
        f"{amount(change.before_ms, 'ms')} → {amount(change.after_ms, 'ms')} per step{most}{which}"
    )


def _named(analysis: Analysis) -> tuple[str, str]:
    named = [straggler for straggler in analysis.stragglers if straggler.ranks]
    if not named:
        return _rotating(analysis)
    worst, more = named[0], len(analysis.stragglers) - 1
    rest = f" {more} more {'is' if more == 1 else 'are'} in the table below." if more else ""
    verb = "makes" if len(worst.ranks) == 1 or worst.hosts else "make"
    when = _WHEN[worst.pattern]
    title = f"{capitalised(who(worst))} {verb} the others wait{when}: {_how(worst)}"
    return title, f"{_cost(worst, analysis)}{rest}"


def _rotating(analysis: Analysis) -> tuple[str, str]:
    worst = analysis.stragglers[0]
    stage = NAMES[worst.stage]
    title = f"No single straggler: late {stage} varies from step to step"
    late = (
        f"In {percent(worst.late_share)} of steps one rank or another is late by "
        f"{excess(worst)}, and no rank is late more often than chance explains."
    )
    return title, f"{late} {_cost(worst, analysis)}"


def _how(straggler: Straggler) -> str:
    stage = NAMES[straggler.stage]
    how = _LATER[straggler.pattern].format(
        by=excess(straggler), share=percent(straggler.late_share)
    )
    work = (
        ""
        if straggler.work is None
        else f" (it processes {straggler.work:.2f} times their samples)"
    )
    return f"its {stage} {how}{work}"


def _cost(straggler: Straggler, analysis: Analysis) -> str:
    whole = analysis.step
    step = "" if whole is None else f" of the step's {exact(whole.mean, 'ms', whole.ci95)}"
    steps = counted(len(analysis.steady or ()), "steady step")
    ranks = counted(analysis.run.size, "rank")
    sure = "" if straggler.cost_ms.ci95 else " These steps are too few for an interval."
    return (
        f"That costs {cost(straggler)}{step}: {costs(straggler, analysis)} of rank time, in {steps} "
        f"of {ranks}.{sure}"
    )


def _chance(analysis: Analysis) -> str:
    entry, figures = analysis.entry("imbalance"), StepFigures.of(analysis)
    if entry is None or figures is None:
        return ""
    waits = figures.causes.amount(figures.waits.total, entry.ci95_ms)
    return (
        f"The slowest of {counted(analysis.run.size, 'rank')} is always a little later than the "
        f"typical one: here {waits} per step, "
        f"{percent(entry.share)} of it, and no rank or host is late more often than chance explains."
    )
