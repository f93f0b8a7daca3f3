"""Test a series of runs of one job for lasting changes and trends.

The noise of steps does not show how much runs differ; only the spread between runs does. A lasting
change is the best split of the runs, by Student's t with the spread within both parts, corrected for all
possible splits (Bonferroni; half of it is reserved for the latest run). Unlike a rank test, this works
with a single run on one side, as on the morning after a nightly job. Kendall's τ tests for a trend: it
is exact for few runs and assumes no distribution. The slope is that of Theil and Sen. Both tests cover
several figures, with a false discovery rate of 1 % (Benjamini and Hochberg).

Where the runs' steps hold different amounts of work, all times are those for as much as the first run's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from stallscope.arrays.distributions import (
    chi_square_quantile,
    scipy_stats,
    student_quantile,
    student_tail,
)
from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Floats
from stallscope.formatting.numbers import significant
from stallscope.words import ENTRIES, WorkUnit

from .comparison import Difference, common_unit, differences
from .findings.step_amounts import Amount
from .result import Analysis, differ
from .scaling.pace import job_of_lines

#: A change needs a known spread within its parts, from at least three differences.
FEWEST_FOR_A_CHANGE = 5
#: One order of five runs in 60 rises or falls throughout, which is too likely by chance.
FEWEST_FOR_A_TREND = 6
_BY_CHANCE = 0.01
# A smaller part of the step or the rate is not reported, even if it is significant.
_WORTH = 0.01
_MOST_CHANGES = 10
# Runs with the same facts are the same job: their steps do the same work.
_SAME_JOB = (
    "framework",
    "model",
    "parameters",
    "optimizer",
    "batch_size",
    "backward_passes_per_step",
    "steps_per_execution",
)

#: The figures that are not times.
RATE, TOKENS = "samples_per_second", "tokens_per_second"

Status = Literal["change", "trend", "steady", "insufficient_data"]


@dataclass(frozen=True)
class LastingChange:
    """A lasting change of a figure; ``run`` is the first run of the new level, from 0."""

    run: int
    before: float
    after: float
    #: After − before, with its interval from run to run.
    by: Mean
    p: float


@dataclass(frozen=True)
class Trend:
    """The growth of a figure from run to run (Theil and Sen), and Kendall's p."""

    #: The value of its line at the first run.
    begin: float
    per_run: Mean
    p: float


@dataclass(frozen=True)
class Figure:
    """A figure over the runs: ``step`` or an entry in milliseconds, or a rate per second."""

    name: str
    #: Per run; None if it was not measured.
    values: tuple[Mean | None, ...]
    status: Status
    #: Why there is too little data; empty otherwise.
    why: str
    changes: tuple[LastingChange, ...]
    trend: Trend | None
    #: Standard deviation between runs without changes and trend; None with fewer than three runs.
    spread: Mean | None

    @property
    def is_rate(self) -> bool:
        """Whether it is a throughput: more of it is better."""
        return self.name in (RATE, TOKENS)

    @property
    def unit(self) -> str:
        return f"{self.name.partition('_')[0]}/s" if self.is_rate else "ms"


@dataclass(frozen=True)
class Rerun:
    """One run of the job, and the facts that differ from the run before."""

    analysis: Analysis
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class History:
    """All runs of one job, the oldest first."""

    name: str
    runs: tuple[Rerun, ...]
    figures: tuple[Figure, ...]
    warnings: tuple[str, ...]
    #: The unit in which the runs' steps hold different amounts of work; None if they hold as much.
    unit: WorkUnit | None

    def figure(self, name: str) -> Figure:
        return next(figure for figure in self.figures if figure.name == name)


def regression(analyses: Iterable[Analysis], *, same_job: bool = False) -> list[History]:
    """Group runs by job in the order of their starts, the longest history first.

    If a start is unknown, the given order is kept.

    Args:
        analyses: the runs.
        same_job: whether other programs' lines are of one job, whatever they say of it.
    """
    jobs: dict[tuple[str, ...], list[Analysis]] = defaultdict(list)
    dropped: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for analysis in analyses:
        job = _job(analysis, same_job)
        if analysis.step is None:
            dropped[job].append(f"{analysis.run.name} is left out: it has no measured steps")
        elif any(member.run.id == analysis.run.id for member in jobs[job]):
            dropped[job].append(f"{analysis.run.name} is left out: it was given twice")
        else:
            jobs[job].append(_without_steps(analysis))
    longest_first = sorted((job for job in jobs if jobs[job]), key=lambda job: -len(jobs[job]))
    histories = [
        _history(jobs[job], [*_unlike(job, longest_first[0]), *dropped[job]])
        for job in longest_first
    ]
    # Runs of jobs that have no history are named with the first one.
    elsewhere = [text for job, texts in dropped.items() if not jobs[job] for text in texts]
    if histories and elsewhere:
        first = histories[0]
        histories[0] = replace(first, warnings=(*first.warnings, *elsewhere))
    return histories


def _job(analysis: Analysis, same_job: bool) -> tuple[str, ...]:
    run = analysis.run
    facts = (str(run.fact(name)) for name in _SAME_JOB)
    lines = job_of_lines(analysis)[: 1 if same_job else None]
    return (str(run.size), str(run.synthetic), " ".join(lines), *facts)


def _unlike(job: tuple[str, ...], first: tuple[str, ...]) -> list[str]:
    """Describe how a job differs from the one with the most runs."""
    names = (
        "number of ranks",
        "kind of data",
        "program or settings",
        *(name.replace("_", " ") for name in _SAME_JOB),
    )
    others = [
        name for name, value, reference in zip(names, job, first, strict=True) if value != reference
    ]
    return [f"not the same job as the first one here: another {', '.join(others)}"] * bool(others)


def _without_steps(analysis: Analysis) -> Analysis:
    """Keep the figures only: the steps of all runs of a store may not fit into memory."""
    run = analysis.run
    bare = replace(run, steps=run.steps.slice(0, 0), intervals=run.intervals.slice(0, 0))
    return replace(analysis, run=bare, ledger=None, steady=None)


def _history(runs: Sequence[Analysis], warnings: Sequence[str]) -> History:
    starts = [analysis.run.started_at for analysis in runs]
    known = [start.timestamp() for start in starts if start is not None]
    notes = list(warnings)
    if len(known) == len(runs):
        runs = [runs[at] for at in np.argsort(known, kind="stable")]
    else:
        notes.append(
            "not every run has a start time: runs are in the order in which they were given"
        )
    reruns = [
        Rerun(after, tuple(differences(before.run, after.run)))
        for before, after in pairwise([runs[0], *runs])
    ]
    first = runs[0].run
    name = str(first.fact("model") or first.fact("framework") or "one job")
    work = _different_amounts(runs)
    if work:
        each = f"{significant(work[0].per_step.value / first.size)} {work[0].unit}s"
        notes.append(
            f"steps hold different amounts of work: all times are for {each} on each rank, as in "
            f"{runs[0].run.name}"
        )
    unit = work[0].unit if work else None
    return History(name, tuple(reruns), tuple(_figures(runs, work)), tuple(notes), unit)


def _different_amounts(runs: Sequence[Analysis]) -> list[Amount]:
    """Return what the runs' steps hold if that differs; empty if it does not or is unknown."""
    unit = common_unit(runs)
    known = [] if unit is None else [run.amount(unit) for run in runs]
    work = [amount for amount in known if amount is not None]
    return work if differ([amount.per_step for amount in work]) else []


@dataclass(frozen=True)
class _Tested:
    """The known values of a figure, and the runs that have them."""

    name: str
    means: tuple[Mean | None, ...]
    values: Floats
    runs: list[int]
    #: The least change that is reported.
    worth: float

    @cached_property
    def p_change(self) -> float:
        """The p of the best split; 1 with too few runs."""
        return _best_split(self.values)[1] if len(self.values) >= FEWEST_FOR_A_CHANGE else 1.0

    @cached_property
    def p_trend(self) -> float:
        """The p of Kendall's test; 1 with too few runs."""
        if len(self.values) < FEWEST_FOR_A_TREND:
            return 1.0
        p = float(scipy_stats.kendalltau(np.arange(len(self.values)), self.values).pvalue)
        return p if np.isfinite(p) else 1.0


def _figures(runs: Sequence[Analysis], work: Sequence[Amount]) -> Iterator[Figure]:
    means = dict(_means(runs, work))
    step_ms = float(np.mean([mean.value for mean in means["step"] if mean is not None]))
    tested = [_tested(name, of_runs, step_ms) for name, of_runs in means.items()]
    several = [p for figure in tested for p in (figure.p_change, figure.p_trend)]
    kept = scipy_stats.false_discovery_control(several) if several else np.zeros(0)
    for figure, (change, trend) in zip(tested, kept.reshape(-1, 2).tolist(), strict=True):
        yield _figure(figure, change <= _BY_CHANCE, trend <= _BY_CHANCE)


def _means(
    runs: Sequence[Analysis], work: Sequence[Amount]
) -> Iterator[tuple[str, list[Mean | None]]]:
    """Return every figure that any run has.

    Args:
        runs: the runs.
        work: what their steps hold, to scale times to the first run's; empty to leave them.
    """
    factors = [work[0].per_step.over(amount.per_step) for amount in work]

    def for_same_work(means: list[Mean | None]) -> list[Mean | None]:
        if not factors:
            return means
        pairs = zip(means, factors, strict=True)
        return [None if mean is None else mean.times(factor) for mean, factor in pairs]

    yield "step", for_same_work([analysis.step_ms for analysis in runs])
    tokens = [analysis.tokens_per_second for analysis in runs]
    for name, rates in ((RATE, [_rate(analysis) for analysis in runs]), (TOKENS, tokens)):
        if any(rates):
            yield name, rates
    for name in ENTRIES:
        entries = [analysis.entry_ms(name) for analysis in runs]
        if any(entries):
            yield name, for_same_work(entries)


def _rate(analysis: Analysis) -> Mean | None:
    rate, step = analysis.samples_per_second, analysis.step
    if rate is None:
        return None
    if step is None or step.ci95 is None or step.ci95[0] <= 0:
        return Mean(rate, None)
    work = rate * step.mean
    return Mean(rate, (work / step.ci95[1], work / step.ci95[0]))


def _tested(name: str, means: Sequence[Mean | None], step_ms: float) -> _Tested:
    at = [index for index, mean in enumerate(means) if mean is not None]
    values = np.array([mean.value for mean in means if mean is not None])
    whole = float(np.mean(values)) if name in (RATE, TOKENS) else step_ms
    return _Tested(name, tuple(means), values, at, _WORTH * whole)


def _best_split(values: Floats) -> tuple[int, float]:
    """Find the best split: the start of its second part, and p over all splits.

    Half of the false alarms are reserved for the latest run, because a nightly job asks about it.
    """
    n = len(values)
    left = np.arange(1, n)
    sums = np.cumsum(values)
    difference = (sums[-1] - sums[:-1]) / (n - left) - sums[:-1] / left
    explained = difference**2 * left * (n - left) / n
    rest = ((values - values.mean()) ** 2).sum() - explained
    # Rounding errors are not a spread.
    scatter = np.maximum(rest, 1e-18 * float(values @ values) or 1.0)
    t = np.sqrt(explained * (n - 2) / scatter)
    splits = np.full(n - 1, 2 * (n - 2))
    splits[-1] = 2
    p = np.minimum(2 * student_tail(t, n - 2) * splits, 1.0)
    best = int(np.argmax(explained))
    if p[best] > _BY_CHANCE >= p[-1]:
        best = n - 2
    return best + 1, float(p[best])


def _figure(tested: _Tested, changed: bool, drifts: bool) -> Figure:
    n = len(tested.values)
    splits = dict(sorted(_splits(tested))) if changed else {}
    line = scipy_stats.theilslopes(tested.values, tested.runs) if n >= FEWEST_FOR_A_TREND else None
    rest = _around_levels(tested.values, list(splits))
    drifts = drifts and line is not None and abs(line.slope) * (n - 1) >= tested.worth
    if drifts and line is not None:
        # A step can look like a drift, and a drift like steps: choose by the information criterion.
        along = tested.values - line.intercept - line.slope * np.array(tested.runs)
        drifts = not splits or _bic(along, 2) < _bic(rest, 2 * len(splits) + 1)
        splits, rest = ({}, along) if drifts else (splits, rest)
    why, trend = "", None
    status: Status = "trend" if drifts else "change" if splits else "steady"
    if n < FEWEST_FOR_A_CHANGE:
        status, have = "insufficient_data", "1 run has it" if n == 1 else f"{n} runs have it"
        why = f"{have}, and {FEWEST_FOR_A_CHANGE} are needed to distinguish a change from chance"
    if line is not None:
        slopes = (float(line.low_slope), float(line.high_slope))
        trend = Trend(float(line.intercept), Mean(float(line.slope), slopes), tested.p_trend)
    spread = _spread(rest, n - (2 if drifts else 1 + len(splits)))
    return Figure(
        tested.name, tested.means, status, why, tuple(_changes(tested, splits)), trend, spread
    )


def _splits(tested: _Tested) -> Iterator[tuple[int, float]]:
    """Find the starts of levels with their p, by splitting parts repeatedly."""
    parts = [(0, len(tested.values))]
    count = 0
    while parts and count < _MOST_CHANGES:
        begin, end = parts.pop()
        values = tested.values[begin:end]
        if len(values) < FEWEST_FOR_A_CHANGE:
            continue
        at, p = _best_split(values)
        # The whole series was already tested together with the other figures.
        whole = len(values) == len(tested.values)
        if not whole and p > _BY_CHANCE / (2 + len(ENTRIES)):
            continue
        if abs(values[at:].mean() - values[:at].mean()) < tested.worth:
            continue
        count += 1
        yield begin + at, p
        parts += [(begin, begin + at), (begin + at, end)]


def _changes(tested: _Tested, splits: Mapping[int, float]) -> Iterator[LastingChange]:
    edges = [0, *splits, len(tested.values)]
    rest = _around_levels(tested.values, list(splits))
    free = len(rest) - len(splits) - 1
    for begin, at, end in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = tested.values[begin:at], tested.values[at:end]
        error = np.sqrt(float(rest @ rest) / free * (1 / len(before) + 1 / len(after)))
        by = float(after.mean() - before.mean())
        half = float(student_quantile(0.975, free) * error)
        yield LastingChange(
            tested.runs[at],
            float(before.mean()),
            float(after.mean()),
            Mean(by, (by - half, by + half)),
            splits[at],
        )


def _around_levels(values: Floats, splits: Sequence[int]) -> Floats:
    parts = np.split(values, splits)
    return np.concatenate([part - part.mean() for part in parts])


def _bic(rest: Floats, parameters: int) -> float:
    """Compute the Bayesian information criterion (Schwarz 1978): smaller is better."""
    n = len(rest)
    return float(n * np.log(max(float(rest @ rest), 1e-300) / n) + parameters * np.log(n))


def _spread(rest: Floats, free: int) -> Mean | None:
    """Return the standard deviation of runs, with its interval."""
    if free < 2:
        return None
    squares = float(rest @ rest)
    low, high = np.sqrt(squares / chi_square_quantile((0.975, 0.025), free)).tolist()
    return Mean(float(np.sqrt(squares / free)), (low, high))
