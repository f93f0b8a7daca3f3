"""Warn about the limits of a series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.formatting.lists import counted, listed

from ..result import Analysis
from .pace import Pace, Unit
from .points import Point
from .projection import CONTENTION, slower_compute

# Facts that may differ within a job and make its sizes less comparable.
_BETTER_THE_SAME = ("versions", "threads")


def warnings_of(
    runs: Sequence[Pace],
    points: Sequence[Point],
    unit: Unit,
    shares_no_batch: bool,
    single: Point | None,
) -> Iterator[str]:
    """Return warnings, as sentences without a capital and a full stop.

    Args:
        shares_no_batch: whether both the batch per rank and the global batch differ.
        single: the point on one rank.
    """
    if len(points) == 1:
        which = "all runs are" if len(points[0].runs) > 1 else "the only run is"
        yield f"{which} on {counted(points[0].ranks, 'rank')}: scaling needs runs on other numbers"
    if single is None:
        yield "there is no run on one rank: efficiency is only known against the smallest size"
    yield from _of_the_unit(unit)
    if shares_no_batch:
        yield "neither the batch per rank nor that of all ranks together is the same in all runs"
    if single is not None and slower_compute(points[-1], single) > CONTENTION:
        yield (
            f"compute takes {slower_compute(points[-1], single):.0%} longer on "
            f"{counted(points[-1].ranks, 'rank')} than on one: ranks share cores, memory or buses. The "
            "projection assumes compute as on the largest size; its interval also covers still slower "
            "compute"
        )
    yield from _of_epochs(runs)
    faulty = [point for point in points if all(fault_of(run) for run in point.runs)]
    for point in points:
        # If every size has the fault, it is a property of the job.
        yield from _of_faults(point, compare=len(faulty) < len(points))
    for name in _BETTER_THE_SAME:
        known = {str(run.fact(name)) for run in runs if run.from_steps}
        if len(known) > 1:
            yield f"{name} are not the same in all runs"
    for run in runs:
        missing = run.run.missing_ranks
        if missing and run.from_steps:
            yield f"{run.run.name}: {len(missing)} of {run.size} ranks left no log"


def _of_the_unit(unit: Unit) -> Iterator[str]:
    if unit == "steps":
        yield "batch sizes are unknown: every rank's step is assumed to be the same work"
    if unit == "epochs":
        yield (
            "samples per epoch are unknown: an epoch is assumed to be one pass of all ranks together "
            "over the same data, so efficiency is time on one rank / (N × time on N ranks)"
        )


def _of_epochs(runs: Sequence[Pace]) -> Iterator[str]:
    """Describe the sources of figures if steps were not recorded."""
    others = [run for run in runs if not run.from_steps]
    if not others:
        return
    yield (
        "where steps were not recorded, steady figures are means of epochs without the first one, or "
        f"of steps, including validation: {'; '.join(_sources(others))}"
    )
    if any(run.fact("samples_per_step") is not None for run in others):
        yield "examples per second that TimeHistory logged are assumed to be those of all ranks together"
    partly = [run for run in others if not run.fact("whole_job")]
    if partly:
        sizes = sorted({run.size for run in partly})
        yield (
            f"the start of the job on {', '.join(map(str, sizes))} "
            f"{'rank' if sizes == [1] else 'ranks'} is unknown: it counts from its first epoch or step"
        )
    if len(others) < len(runs):
        yield (
            "some runs recorded their steps, others their epochs: efficiency compares epochs with "
            "epochs if both runs have them"
        )


def _sources(runs: Sequence[Pace]) -> list[str]:
    """Name the sources of epochs, each with its worst precision."""
    sources: dict[str, tuple[float, str]] = {}
    for run in runs:
        known = run.analysis.epoch_times
        if known is not None:
            half = float(run.fact("epoch_precision_ms") or 0.0)
            worst = max(sources.get(known.known_from, (-1.0, "")), (half, known.precision))
            sources[known.known_from] = worst
    return [f"{known_from} ({precision})" for known_from, (_, precision) in sources.items()]


def _of_faults(point: Point, *, compare: bool) -> Iterator[str]:
    """Warn about sizes at which only some runs have a fault, and about sizes without a clean run."""
    faults = [(run.run.name, fault_of(run)) for run in point.runs]
    faulty = [f"{name} ({fault})" for name, fault in faults if fault is not None]
    if faulty and len(faulty) < len(faults):
        yield (
            f"runs on {counted(point.ranks, 'rank')} are averaged though they differ by a fault: "
            f"{', '.join(faulty)}"
        )
    elif faulty and compare:
        yield f"every run on {counted(point.ranks, 'rank')} has a fault: {', '.join(faulty)}"


def fault_of(analysis: Analysis) -> str | None:
    """Describe the fault in a few words (``slow rank 3``); None for a clean run."""
    verdict = analysis.bottleneck
    if verdict.fault:
        if not verdict.ranks:
            return "slow ranks" if verdict.kind == "imbalance" else verdict.kind
        ranks = listed("rank", verdict.ranks)
        return f"slow {ranks}" if verdict.kind == "imbalance" else f"{verdict.kind} of {ranks}"
    return next(
        (finding.title for finding in analysis.findings if finding.severity == "error"), None
    )
