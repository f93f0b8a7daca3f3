"""Chart a job's step time from day to day, and from version to version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.charts.kinds import Bar, Segment, StackedBars
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount

from .index import IndexLine

# More charts, or more bars in one, are hard to read.
_MOST_JOBS = 4
_MOST_BARS = 14


def trends(lines: Iterable[IndexLine]) -> list[StackedBars]:
    """Return charts of the jobs that lost most time and have several days or versions.

    Runs with different models, numbers of ranks or kinds of data are never in one chart.
    """
    jobs: dict[tuple[str, int, bool], list[IndexLine]] = defaultdict(list)
    for line in lines:
        if line.by_cause_ms and line.started_at is not None:
            jobs[line.job, line.ranks, line.synthetic].append(line)
    by_time = sorted(jobs.values(), key=lambda job: -sum(line.lost_h or 0.0 for line in job))
    charts: list[StackedBars] = []
    jobs_shown = 0
    for job in by_time:
        job_charts = [*_over(job, "day", lambda line: line.day), *_over(job, "version", _version)]
        charts += job_charts
        jobs_shown += bool(job_charts)
        if jobs_shown == _MOST_JOBS:
            break
    return charts


def _over(
    lines: Sequence[IndexLine], word: str, of: Callable[[IndexLine], str | None]
) -> Iterable[StackedBars]:
    groups: dict[str, list[IndexLine]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.started_at or ""):
        name = of(line)
        if name:
            groups[name].append(line)
    if len(groups) < 2:
        return
    shown = dict(list(groups.items())[-_MOST_BARS:])
    labels = _apart(list(shown))
    bars = [_bar(label, group) for label, group in zip(labels, shown.values(), strict=True)]
    left_out = len(groups) - len(shown)
    earlier = f" {counted(left_out, f'earlier {word}')} left out." if left_out else ""
    counts = sorted(len(group) for group in shown.values())
    runs = counted(counts[-1], "run")
    runs = runs if counts[0] == counts[-1] else f"{counts[0]} to {runs}"
    yield StackedBars(
        f"{_title(lines[0])}: steps from {word} to {word}",
        f"Mean steady step of each {word}'s {runs}: {amount(bars[0].total, 'ms')} with "
        f"{bars[0].label}, {amount(bars[-1].total, 'ms')} with {bars[-1].label}.{earlier}",
        "ms",
        tuple(bars),
    )


def _bar(name: str, lines: Sequence[IndexLine]) -> Bar:
    segments = tuple(
        Segment(entry, fmean(line.by_cause_ms.get(entry, 0.0) for line in lines))
        for entry in CAUSES
    )
    return Bar(name, segments)


def _apart(names: Sequence[str]) -> list[str]:
    """Shorten names to the parts in which they differ."""
    parts = [name.split(", ") for name in names]
    common = set(parts[0]).intersection(*parts)
    return [
        ", ".join(piece for piece in pieces if piece not in common) or name
        for pieces, name in zip(parts, names, strict=True)
    ]


def _version(line: IndexLine) -> str | None:
    return line.commit[:10] if line.commit else line.versions


def _title(line: IndexLine) -> str:
    data = ", synthetic data" if line.synthetic else ""
    return f"{line.model or 'Unnamed model'} on {counted(line.ranks, 'rank')}{data}"
