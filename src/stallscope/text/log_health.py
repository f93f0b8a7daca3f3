"""Describe whether a run's logs are complete."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.figures import holes_in_words
from stallscope.analysis.views.log_health import RankLogs
from stallscope.formatting.lists import counted, listed
from stallscope.formatting.numbers import amount, percent

from .figures import coverage


def health(analysis: Analysis, ranks: Sequence[RankLogs]) -> tuple[str, str]:
    """Describe what is missing, and what was read."""
    run = analysis.run
    there = sum(one.files > 0 for one in ranks)
    read = (
        f"{there:,} of {counted(len(ranks), 'rank')} on {counted(len(run.hosts), 'host')} left "
        f"{counted(len(run.logs), 'log')} with {counted(analysis.steps, 'step')}."
        f"{_cost(analysis, ranks)}"
    )
    if not analysis.steps:
        return "There is no step in these logs", read
    if analysis.coverage.holes or not all(one.whole for one in ranks):
        return "These logs are not whole", read
    if analysis.ledger is None:
        return "These logs are whole, but hold no stages", read
    return "These logs are whole", f"{read} Every rank has every step, and closed its last log."


def _cost(analysis: Analysis, ranks: Sequence[RankLogs]) -> str:
    """Write the highest recording cost of a rank; empty if no log has it."""
    known = [one.cost_us for one in ranks if one.cost_us is not None]
    if not known:
        return ""
    step = analysis.step
    share = (
        "" if step is None or not step.mean else f", {percent(max(known) / step.mean / 1e3)} of it"
    )
    return f" Recording took at most {max(known):,.1f} µs of a step on the host{share}."


def lacks(analysis: Analysis, ranks: Sequence[RankLogs]) -> list[str]:
    """List what is missing, the most serious first."""
    absent = [one.rank for one in ranks if not one.files]
    short = [one for one in ranks if one.files and one.missing_steps]
    open_ones = [one.rank for one in ranks if one.files and not one.ended]
    torn = [one for one in ranks if one.torn]
    messages = []
    if absent:
        part = percent(len(absent) / len(ranks))
        messages.append(f"No log of {listed('rank', absent)}: {part} of the ranks.")
    if short:
        most = max(short, key=lambda one: one.missing_steps)
        messages.append(
            f"Steps that other ranks have are missing on {listed('rank', _ranks(short))}; most of "
            f"them on rank {most.rank}, {counted(most.missing_steps, 'step')}."
        )
    if analysis.coverage.holes:
        messages.append(f"No rank has {holes_in_words(analysis.coverage.holes)}.")
    if open_ones:
        messages.append(
            f"The last log of {listed('rank', open_ones)} has no end: running, or killed."
        )
    if torn:
        lines = sum(one.torn for one in torn)
        messages.append(
            f"{counted(lines, 'line')} of {listed('rank', _ranks(torn))} could not be read."
        )
    return messages + _unused(analysis)


def late_timestamps(analysis: Analysis) -> str:
    """Say how often a timestamp came late, and on which rank most often; empty without steps."""
    found = analysis.clocks
    if found is None:
        return ""
    if not found.late:
        return "No timestamp is known to be late."
    most = max(zip(found.late_by_rank, analysis.ranks, strict=True), key=lambda pair: pair[0])
    return (
        f"A timestamp came late in {percent(found.late)} of steps, most often on rank "
        f"{most[1].rank} ({percent(most[0])}): it is moved to the latest moment that causality "
        f"allows, {amount(found.late_ms, 'ms')} per step on average."
    )


def _unused(analysis: Analysis) -> list[str]:
    """Say how many steps are not in the ledger; nothing without steps."""
    if not analysis.steps:
        return []
    if analysis.ledger is None:
        return ["No step has all timestamps that its stages need: only step times are known."]
    found = coverage(analysis)
    return [f"In the ledger are {found}."] if found else []


def _ranks(found: Sequence[RankLogs]) -> list[int]:
    return [one.rank for one in found]
