"""What is drawn: plain descriptions of charts, made from an Analysis.

Every chart has a sentence that says what it shows; it is the picture's text for screen readers, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from stallscope.analysis import ENTRIES, Analysis

Floats = npt.NDArray[np.float64]

#: Points along the run that a picture shows at most; more cannot be told apart on a screen.
MOST_POINTS = 400
#: Bars side by side that can be read; beyond that, the ranks that matter are chosen.
MOST_RANKS = 32

TITLES = {
    "input": "Input",
    "compute": "Compute",
    "other": "Other",
    "imbalance": "Imbalance",
    "wait": "Waiting for slow ranks",
    "allreduce": "Exposed allreduce",
    "startup": "Start-up",
    "warmup": "Warm-up",
    "steps": "Steps",
    "validation": "Validation",
    "checkpoint": "Checkpoints",
    "epoch_gap": "Between epochs",
}


@dataclass(frozen=True)
class Segment:
    """A piece of a bar. ``name`` is a key of TITLES and of the palette."""

    name: str
    value: float
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bar:
    label: str
    segments: tuple[Segment, ...]
    #: Drawn with emphasis: a rank that is named, say.
    emphasised: bool = False

    @property
    def total(self) -> float:
        return sum(segment.value for segment in self.segments)


@dataclass(frozen=True)
class StackedBars:
    """Horizontal bars made of segments."""

    title: str
    sentence: str
    unit: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class StackedArea:
    """Ledger entries over the run, stacked; ``marks`` are the steps at which epochs begin."""

    title: str
    sentence: str
    unit: str
    x_label: str
    x: Floats
    layers: tuple[tuple[str, Floats], ...]
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Waterfall:
    """From one total to another by what each entry adds or takes."""

    title: str
    sentence: str
    unit: str
    start: tuple[str, float]
    changes: tuple[Segment, ...]
    end: tuple[str, float]


Chart = StackedBars | StackedArea | Waterfall


def ledger_chart(analysis: Analysis) -> StackedBars | None:
    """Where a step's time goes: one bar, and the baseline's below it. None without stages."""
    if not analysis.entries or analysis.step is None:
        return None
    bars = [Bar("this run", _entry_segments(analysis))]
    if analysis.baseline is not None and analysis.baseline.entries:
        bars.append(Bar("baseline", _entry_segments(analysis.baseline)))
    largest = max(analysis.entries, key=lambda entry: entry.ms)
    return StackedBars(
        "Where a step's time goes",
        f"A step takes {analysis.step.mean:.1f} ms, most of it "
        f"{TITLES[largest.name].lower()} with {largest.ms:.1f} ms.",
        "ms",
        tuple(bars),
    )


def ranks_chart(analysis: Analysis) -> StackedBars | None:
    """Every rank's own step side by side: its work, then its wait. None without stages."""
    ranks = [rank for rank in analysis.ranks if rank.wait_ms is not None]
    if not ranks:
        return None
    named = set(analysis.bottleneck.ranks)
    if len(ranks) > MOST_RANKS:
        # The named ones and those that wait least: they are the late ones.
        ranks = sorted(ranks, key=lambda rank: (rank.rank not in named, rank.wait_ms or 0.0))
        ranks = sorted(ranks[:MOST_RANKS], key=lambda rank: rank.rank)
    bars = tuple(
        Bar(
            f"rank {rank.rank}",
            tuple(
                Segment(name, getattr(rank, f"{name}_ms") or 0.0)
                for name in ("other", "input", "compute", "wait", "allreduce")
            ),
            emphasised=rank.rank in named,
        )
        for rank in ranks
    )
    shown = (
        "All ranks"
        if len(ranks) == len(analysis.ranks)
        else f"The {len(ranks)} latest of {len(analysis.ranks)} ranks"
    )
    return StackedBars(
        "Ranks side by side",
        f"{shown}: what each did in a step, and how long it waited for the last one.",
        "ms",
        bars,
    )


def step_time_chart(analysis: Analysis) -> StackedArea | None:
    """The ledger over the run, warm-up left out, averaged to what a screen can show."""
    ledger = analysis.steady
    if ledger is None:
        return None
    n = len(ledger)
    edges = np.unique(np.linspace(0, n, min(n, MOST_POINTS) + 1).astype(np.int64))
    counts = np.diff(edges)
    layers = tuple(
        (name, np.add.reduceat(ledger.entry(name), edges[:-1]) / counts / 1e6) for name in ENTRIES
    )
    begins = np.flatnonzero(np.diff(ledger.epochs, prepend=ledger.epochs[0] - 1))
    marks = tuple((float(ledger.steps[at]), f"epoch {ledger.epochs[at]}") for at in begins[:200])
    mean = "" if counts.max() == 1 else f", each point the mean of {int(counts.max())} steps"
    return StackedArea(
        "Step time over the run",
        f"{n} steady steps{mean}.",
        "ms",
        "step",
        ledger.steps[edges[:-1]].astype(np.float64),
        layers,
        marks,
    )


def baseline_chart(analysis: Analysis) -> Waterfall | None:
    """From the baseline's step to this run's. None without a baseline, or without stages in either."""
    base = analysis.baseline
    if base is None or base.step is None or not base.entries:
        return None
    if analysis.step is None or not analysis.entries:
        return None
    changes = tuple(
        Segment(entry.name, entry.excess_ms, entry.excess_ci95_ms)
        for entry in analysis.entries
        if entry.excess_ms is not None
    )
    difference = analysis.step.mean - base.step.mean
    word = "slower" if difference >= 0 else "faster"
    return Waterfall(
        "Against the synthetic baseline",
        f"A step is {abs(difference):.1f} ms {word} than the baseline's {base.step.mean:.1f} ms.",
        "ms",
        ("baseline", base.step.mean),
        changes,
        ("this run", analysis.step.mean),
    )


def job_chart(analysis: Analysis) -> StackedBars | None:
    """Where the whole job's time went. None without stages: nothing tells steps from the rest."""
    if analysis.ledger is None:
        return None
    job = analysis.job
    names = [field.name for field in fields(job) if field.name != "total"]
    segments = tuple(Segment(name, getattr(job, name)) for name in names)
    share = job.steps / job.total if job.total else 0.0
    return StackedBars(
        "Where the job's time went",
        f"{share:.0%} of {job.total:.1f} s was spent in steady steps.",
        "s",
        (Bar("job", segments),),
    )


def charts_of(analysis: Analysis) -> Sequence[Chart]:
    """All charts of a run, in the order in which a reader wants them."""
    made = (
        ledger_chart(analysis),
        baseline_chart(analysis),
        ranks_chart(analysis),
        step_time_chart(analysis),
        job_chart(analysis),
    )
    return [chart for chart in made if chart is not None]


def _entry_segments(analysis: Analysis) -> tuple[Segment, ...]:
    return tuple(Segment(entry.name, entry.ms, entry.ci95_ms) for entry in analysis.entries)
