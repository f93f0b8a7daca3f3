"""Pivot the table of steps into arrays of steps × ranks, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import LATEST, NULL, Array, Block, Matrix
from stallscope.arrays.pivot import of_generation, pivot, without_logs
from stallscope.arrays.types import Bools, Ints
from stallscope.run import TIMESTAMPS, Log, Run, places_of

from .causality import UNBROKEN, LateTimestamps, bounded
from .clocks import Clocks, align_clocks
from .links import corrected_by_links

#: Kinds of intervals between two steps.
PAUSES = ("validation", "checkpoint")


@dataclass(frozen=True)
class Intervals:
    """Validation and checkpoints of every rank: one entry each, on the rank's aligned clock."""

    kind: npt.NDArray[np.str_]
    rank_index: Ints
    #: The step that came next.
    step: Ints
    begin: Ints
    end: Ints


@dataclass(frozen=True)
class AlignedSteps:
    """One generation of a run: S steps × R ranks, int64 nanoseconds on one clock, NULL where missing."""

    generation: int
    steps: Ints
    #: Per step, -1 if unknown.
    epochs: Ints
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    #: The timestamps; ``samples``, the number that a rank processed, NULL if unknown; ``elements``, the
    #: numbers in its batch, if they vary in the run; ``devices``, the time of all ranks' devices that is
    #: in *ready*, if the logs have the hosts' work only; and ``measured``: whether the rank has all five
    #: timestamps.
    cells: Matrix
    #: Whether a new training session began with this step (a process, or a further fit).
    session_start: Bools
    intervals: Intervals
    clocks: Clocks
    #: The timestamps that were moved to the latest moment that causality allows.
    late: LateTimestamps
    #: Per rank, its stages of a pipeline; empty where the ranks form none.
    stages: tuple[tuple[int, ...], ...] = ()
    #: Of each dimension of the job's mesh, per rank, its place there, such as ``dp 1``.
    places: tuple[tuple[str, ...], ...] = ()

    @property
    def begin(self) -> Ints:
        return self.cells.whole("begin")

    @property
    def data(self) -> Ints:
        return self.cells.whole("data")

    @property
    def ready(self) -> Ints:
        return self.cells.whole("ready")

    @property
    def reduced(self) -> Ints:
        return self.cells.whole("reduced")

    @property
    def end(self) -> Ints:
        return self.cells.whole("end")

    @property
    def samples(self) -> Ints:
        return self.cells.whole("samples")

    @property
    def measured(self) -> Bools:
        return self.cells.whole("measured")

    def times_of(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """Convert begins and ends of intervals by the offsets of their ranks' clocks at their steps."""
        at = np.searchsorted(self.steps, arrow.numbers(rows["step"]))
        clock = self.clocks.of_rank[np.searchsorted(self.ranks, arrow.numbers(rows["rank"]))]
        offset = self.clocks.offset[np.minimum(at, len(self.steps) - 1), clock]
        begin, end = (arrow.numbers(rows[name]).astype(np.int64) for name in ("begin", "end"))
        return begin - offset, end - offset


def align(run: Run, generation: int) -> AlignedSteps:
    """Pivot the steps of the generation with this number, and align the hosts' clocks.

    Ranks with too few steps to be compared are left out, as if they had no log.
    """
    table, left_out = of_generation(run.steps, generation), run.left_out(generation)
    if left_out:
        short = [index for index, log in enumerate(run.logs) if log.rank in left_out]
        table = without_logs(table, short)
    sessions = np.array(run.sessions) if any(log.continues for log in run.logs) else None
    work = ("samples", "elements") if run.work_varies else ("samples",)
    dense = pivot(table, (*TIMESTAMPS, *work), run.allocate, sessions)
    last_log = run.last_logs_of(generation)
    logs = [last_log[rank] for rank in dense.ranks]
    domains = [log.clock_domain for log in logs]
    clocks = align_clocks(
        dense.cells, domains, lambda clocks: corrected_by_links(clocks, run, logs)
    )
    parts = [log.pipeline_part for log in logs]
    stages = tuple(part.stages for part in parts if part is not None)
    stages = stages if len(stages) == len(logs) else ()
    clocks = _of_own_work(clocks, logs, staggered=bool(stages))
    cells, complete = dense.cells, dense.complete
    if run.times_host_work and len(logs) == 1:
        # Its devices wait for those of other ranks, whose logs alone tell until when.
        cells, complete = cells.with_computed(("ready",), _unknown), False
    intervals = _intervals(run, generation, np.array(dense.ranks))
    if len(clocks.names) > 1:
        intervals = _intervals_shifted(intervals, clocks, dense.steps)
    cells = _on_one_clock(cells, clocks, complete)
    cells, late = bounded(cells, clocks.causality, clocks.of_rank)
    if run.times_host_work:
        cells = cells.merged_with(cells.compute_by_steps(_with_device_work)[0])
    return AlignedSteps(
        generation=generation,
        steps=dense.steps,
        epochs=dense.epochs,
        ranks=dense.ranks,
        hosts=tuple(log.host for log in logs),
        cells=cells,
        session_start=dense.session_start,
        intervals=intervals,
        clocks=clocks,
        late=late,
        stages=stages,
        places=_places(logs),
    )


def _places(logs: Sequence[Log]) -> tuple[tuple[str, ...], ...]:
    """Return the ranks' places in each dimension of the mesh that groups them unlike the others.

    Their hosts are not among them; Megatron names some groups several times.
    """
    by_groups = {
        _first_of_each(places): tuple(places) for places in reversed(places_of(logs).values())
    }
    by_groups.pop(_first_of_each([log.host for log in logs]), None)
    return tuple(reversed(by_groups.values()))


def _first_of_each(groups: Sequence[str]) -> tuple[int, ...]:
    """Return per rank the position of the first rank of its group."""
    first: dict[str, int] = {}
    return tuple(first.setdefault(group, position) for position, group in enumerate(groups))


def _of_own_work(clocks: Clocks, logs: Sequence[Log], *, staggered: bool) -> Clocks:
    """Let each rank's work start at its own completion, if the logs time it.

    Args:
        clocks: the clocks.
        logs: the last log of each rank.
        staggered: whether ranks end their steps one after the other, as in a pipeline.
    """
    # A rank whose dispatches are unknown in all steps has no such timestamp.
    if not all(log.times_own_work for log in logs) and not any(log.times_host_work for log in logs):
        return clocks
    # The end of a rank's own work is no moment of its clock.
    clocks = replace(clocks, completes_late=True, violated=None)
    # The first stage still works when the last one is done.
    return replace(clocks, causality=UNBROKEN) if staggered else clocks


def _unknown(block: Block, _: str) -> Ints:
    """Kernel: return a timestamp that no rank has."""
    return np.full(block.shape, NULL)


def _with_device_work(block: Block) -> tuple[dict[str, Array], None]:
    """Kernel: add to ranks' compute what their devices do once the last host has dispatched the step.

    Until then devices of the other ranks wait, in their first collective at the latest. How long those
    of each rank compute afterwards cannot be seen, so all have the same time, with its collectives. A
    rank that sees the step before end after others have seen this one end has looked late.
    """
    ready, reduced = block["ready"], block["reduced"]
    last = ready.max(axis=1, initial=NULL)
    first = np.where(reduced == NULL, LATEST, reduced).min(axis=1, initial=LATEST)
    known = (last != NULL) & (first != LATEST)
    devices = np.where(known, np.maximum(first - np.where(known, last, first), 0), 0)
    with_devices = np.where(ready == NULL, NULL, ready + devices[:, None])
    moments = {"begin": block["begin"], "data": block["data"], "ready": with_devices}
    return {
        "devices": np.repeat(devices[:, None], len(block.ranks), axis=1),
        **{name: np.minimum(moment, first[:, None]) for name, moment in moments.items()},
    }, None


def _on_one_clock(cells: Matrix, clocks: Clocks, complete: bool) -> Matrix:
    """Shift timestamps to one clock, and mark the rows in which all of them were measured.

    Args:
        cells: timestamps, each on its rank's own clock, and samples.
        clocks: their offsets.
        complete: whether it is known that no timestamp is missing.
    """
    measured, _ = cells.compute_by_steps(_measured, clocks, () if complete else TIMESTAMPS)
    cells = cells.merged_with(measured)
    if len(clocks.names) < 2:
        return cells
    return cells.with_computed(TIMESTAMPS, _shifted, clocks, complete)


def _measured(
    block: Block, clocks: Clocks, timestamps: Sequence[str]
) -> tuple[dict[str, Array], None]:
    """Mark the cells that have all of these timestamps and in which the clock was not set."""
    measured = np.ones(block.shape[::-1], bool).T
    for name in timestamps:
        measured &= block[name] != NULL
    for jump in clocks.jumps:
        # The clock was set within this step: its stages contain the jump.
        if block.steps.start <= jump.at < block.steps.stop:
            measured[jump.at - block.steps.start, clocks.jumped(jump)] = False
    return {"measured": measured}, None


def _shifted(block: Block, name: str, clocks: Clocks, complete: bool) -> Ints:
    """Subtract the offsets of the clocks from a timestamp."""
    timestamp = block[name]
    shifted = clocks.offset[block.steps].T[clocks.of_rank[block.ranks]].T
    np.subtract(timestamp, shifted, out=shifted)
    if not complete and timestamp.size and timestamp.min() == NULL:
        shifted[timestamp == NULL] = NULL
    return shifted


def _intervals(run: Run, generation: int, ranks: Ints) -> Intervals:
    table = run.intervals.select(["generation", "kind", "rank", "step", "begin", "end"])
    # Filter by kind first: most rows are of other kinds.
    table = table.filter(pc.is_in(table["kind"], arrow.texts([*PAUSES])))
    table = table.filter(arrow.equal(table["generation"], generation))
    rank = arrow.numbers(table["rank"]).astype(np.int64)
    wanted = np.isin(rank, ranks)
    return Intervals(
        kind=arrow.words(table["kind"])[wanted],
        rank_index=np.searchsorted(ranks, rank[wanted]),
        step=arrow.numbers(table["step"])[wanted],
        begin=arrow.numbers(table["begin"])[wanted],
        end=arrow.numbers(table["end"])[wanted],
    )


def _intervals_shifted(intervals: Intervals, clocks: Clocks, steps: Ints) -> Intervals:
    """Shift validation and checkpoints to one clock."""
    at = np.clip(np.searchsorted(steps, intervals.step), 0, max(0, len(steps) - 1))
    known = len(steps) > 0
    shift = clocks.offset[at, clocks.of_rank[intervals.rank_index]] if known else 0
    return replace(intervals, begin=intervals.begin - shift, end=intervals.end - shift)
