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
    with_logs = sum(rank.files > 0 for rank in ranks)
    read = (
        f"{with_logs:,} of {counted(len(ranks), 'rank')} on {counted(len(run.hosts), 'host')} left "
        f"{counted(len(run.logs), 'log')} with {counted(analysis.steps, 'step')}."
        f"{_cost(analysis, ranks)}"
    )
    if not analysis.steps:
        return "There is no step in these logs", read
    if analysis.coverage.holes or not all(rank.whole for rank in ranks):
        return "These logs are not whole", read
    if analysis.ledger is None:
        return "These logs are whole, but hold no stages", read
    return "These logs are whole", f"{read} Every rank has every step, and closed its last log."


def _cost(analysis: Analysis, ranks: Sequence[RankLogs]) -> str:
    """Write the highest recording cost of a rank; empty if no log has it."""
    known = [rank.cost_us for rank in ranks if rank.cost_us is not None]
    if not known:
        return ""
    step = analysis.step
    share = (
        "" if step is None or not step.mean else f", {percent(max(known) / step.mean / 1e3)} of it"
    )
    return f" Recording took at most {max(known):,.1f} µs of a step on the host{share}."


def lacks(analysis: Analysis, ranks: Sequence[RankLogs]) -> list[str]:
    """List what is missing, the most serious first."""
    absent = [rank.rank for rank in ranks if not rank.files]
    short = [rank for rank in ranks if rank.files and rank.missing_steps]
    open_ones = [rank.rank for rank in ranks if rank.files and not rank.ended]
    torn = [rank for rank in ranks if rank.torn]
    messages = []
    if absent:
        part = percent(len(absent) / len(ranks))
        messages.append(f"No log of {listed('rank', absent)}: {part} of the ranks.")
    if short:
        most = max(short, key=lambda rank: rank.missing_steps)
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
        lines = sum(rank.torn for rank in torn)
        messages.append(
            f"{counted(lines, 'line')} of {listed('rank', _ranks(torn))} could not be read."
        )
    return messages + _unused(analysis)


def late_timestamps(analysis: Analysis) -> str:
    """Say how often a timestamp came late, and on which rank most often; empty without steps."""
    clocks = analysis.clocks
    if clocks is None:
        return ""
    if not clocks.late:
        return "No timestamp is known to be late."
    most = max(zip(clocks.late_by_rank, analysis.ranks, strict=True), key=lambda pair: pair[0])
    return (
        f"A timestamp came late in {percent(clocks.late)} of steps, most often on rank "
        f"{most[1].rank} ({percent(most[0])}): it is moved to the latest moment that causality "
        f"allows, {amount(clocks.late_ms, 'ms')} per step on average."
    )


def _unused(analysis: Analysis) -> list[str]:
    """Say how many steps are not in the ledger; nothing without steps."""
    if not analysis.steps:
        return []
    if analysis.ledger is None:
        return ["No step has all timestamps that its stages need: only step times are known."]
    covered = coverage(analysis)
    return [f"In the ledger are {covered}."] if covered else []


def _ranks(ranks: Sequence[RankLogs]) -> list[int]:
    return [rank.rank for rank in ranks]
