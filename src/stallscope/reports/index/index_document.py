"""The document on many runs: a table ranked by lost time, trends, and the runs without a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from stallscope.analysis.gains.what_if import WORTH_MENTIONING
from stallscope.charts.chart_kinds import Bar, Segment, StackedBars
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Scale,
    amount,
    faster_between,
    faster_in_short,
    percent,
    plus_minus,
    rate,
)
from stallscope.text.gain_words import NO_GAIN
from stallscope.text.vocabulary import TITLES
from stallscope.words import CAUSES

from ..document import (
    NOTHING,
    Cell,
    CellBar,
    Document,
    Figure,
    Listing,
    Section,
    Table,
    Text,
    charts_section,
    sections_of,
)
from .index_lines import Index, IndexLine

# Job summaries are limited in size.
_MOST_ROWS = 200
_MOST_FAILED = 50
_FAILED = "failed"
# Below the table of runs.
_NOTE = (
    "Time lost: what the fix saves per step × steps × ranks, as time of one rank. "
    "The fix is the verdict's, or the one that gains most if the verdict names none. "
    "≤ marks a bound: allreduce as if it cost nothing, or a run without a fault."
)
# Columns that a format has no space for, or shows below another figure.
_WITHOUT = {"html": ("Fix", "95% interval"), "md": ("Step time by cause", "Step")}
_WORDS = ("Run", "Verdict", "Fix", "Step time by cause", "Started, UTC")

# More charts, or more bars in one, are hard to read.
_MOST_JOBS = 4
_MOST_BARS = 14


def document(index: Index, form: str) -> Document:
    """Build the document for a format."""
    return Document(index.title, [*_sections(index, form)], "runs")


def _sections(index: Index, form: str) -> Iterator[Section]:
    failed = f"{counted(len(index.failed), 'run')} could not be reported."
    link = [Text(failed, leads_to=_FAILED)] if index.failed and form == "html" else []
    yield Section(index.headline, link, style="headline")
    yield from sections_of(_table(index, form))
    if form == "html":
        yield from charts_section("Trends", map(Figure.of, trends(index.lines)))
    if index.failed:
        failures = Listing(index.failed, most={"md": _MOST_FAILED})
        yield Section("Not reported", (failures,), style="alert", key=_FAILED)


def _table(index: Index, form: str) -> Table:
    lines, scale = index.ranked, index.scale
    columns = {
        "Run": [Cell(line.name, line.name, link=index.page(line, f".{form}")) for line in lines],
        "Verdict": [Cell(line.said, line.said) for line in lines],
        "Time lost": [Cell(_lost(line, scale), _last_if_unknown(line.lost_h)) for line in lines],
        "Fix": [Cell(line.fix or "", line.fix or "") for line in lines],
        "Gain of the fix": [
            Cell(_gain(line), _last_if_unknown(line.speedup), below=_below_gain(line))
            for line in lines
        ],
        "95% interval": map(_interval, lines),
        "Step time by cause": map(_shares, lines),
        "Step": [
            Cell(amount(line.step_ms, "ms"), _last_if_unknown(line.step_ms)) for line in lines
        ],
        "Throughput": [
            Cell(rate(line.samples_per_second), _last_if_unknown(line.samples_per_second))
            for line in lines
        ],
        "Ranks": [Cell(_ranks(line), _last_if_unknown(line.ranks)) for line in lines],
        "Started, UTC": [Cell(line.began or "not known", line.started_at or "") for line in lines],
    }
    for title in _WITHOUT.get(form, ()):
        del columns[title]
    at = list(columns).index
    return Table.of(
        "Runs by time lost",
        columns,
        words=frozenset(at(title) for title in _WORDS if title in columns),
        note=_NOTE,
        most={"md": _MOST_ROWS},
        sorted_by=at("Time lost"),
        legend=[(name, TITLES[name]) for name in CAUSES],
    )


def _lost(line: IndexLine, scale: Scale) -> str:
    """Return the lost time: 12.3 ± 0.4 h, or that it was not measured."""
    if line.lost_h is None:
        return NOT_MEASURED
    most = "≤ " if line.bound else ""
    low, high = line.lost_ci95_h or (None, None)
    ends = None if low is None or high is None else (low * scale.factor, high * scale.factor)
    return f"{most}{plus_minus(line.lost_h * scale.factor, ends)} {scale.unit}"


def _gain(line: IndexLine) -> str:
    """Return the gain of the fix: 1.23×, or at most 1.23× if it is a bound."""
    if line.speedup is None:
        return NOTHING
    if line.speedup < WORTH_MENTIONING:
        return NO_GAIN
    most = "at most " if line.bound else ""
    return f"{most}{faster_in_short(line.speedup, line.speedup_ci95)}"


def _interval(line: IndexLine) -> str:
    ends, gained = line.speedup_ci95, line.speedup or 0.0
    return "" if ends is None or gained < WORTH_MENTIONING else faster_between(gained, ends)


def _below_gain(line: IndexLine) -> str:
    return ": ".join(filter(None, (_interval(line), line.fix)))


def _ranks(line: IndexLine) -> str:
    ranks = "not known" if line.ranks is None else f"{line.ranks:,}"
    return f"{ranks}{', synthetic' if line.synthetic else ''}"


def _last_if_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def _shares(line: IndexLine) -> Cell:
    """Return a small bar of the causes, and the name of the largest."""
    whole = sum(line.by_cause_ms.values())
    if not whole:
        return Cell(NOT_MEASURED)
    shares = {name: ms / whole for name, ms in line.by_cause_ms.items()}
    largest = max(shares, key=lambda name: shares[name])
    text = ", ".join(f"{TITLES[name].lower()} {percent(share)}" for name, share in shares.items())
    return Cell(
        f"{percent(shares[largest])} {TITLES[largest].lower()}",
        largest,
        bar=CellBar([*shares.items()], text=text),
    )


# -- Chart a job's step time from day to day, and from version to version -------------------------


def trends(lines: Iterable[IndexLine]) -> list[StackedBars]:
    """Return charts of the jobs that lost most time and have several days or versions.

    Runs with different models, numbers of ranks or kinds of data are never in one chart.
    """
    jobs: dict[tuple[str, int | None, bool], list[IndexLine]] = defaultdict(list)
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
    unknown = "an unknown number of ranks"
    ranks = unknown if line.ranks is None else counted(line.ranks, "rank")
    return f"{line.model or 'Unnamed model'} on {ranks}{data}"
