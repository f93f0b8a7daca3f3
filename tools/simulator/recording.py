"""Build the run that the recorders of a job would log: each rank's steps, on its host's clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.collector.recorder.step_log.line_format import (
    CHECKPOINT,
    END,
    EPOCH,
    VALIDATION,
    file_name,
    header,
    header_facts,
)
from stallscope.parsers.base import table_of
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Log, Run

from .clocks import HostClock
from .draws import MS, US, Ints, Purpose, blocks, generator, nanoseconds, whole_microseconds
from .faults import BESIDE, LOCK, WORK
from .job import Job
from .timeline import Timeline, epoch_end_parts

#: A time in 2026 at which the logs are opened.
WALL_NS = 1_790_000_000_000_000_000
# The log is opened this long before the first step, and the process starts this long before that.
_OPENED = 100 * MS
_PROCESS_START_US = -500_000
# The numbers in a sample.
_TOKENS = 1024
# The mean time between looks at the training thread, microseconds.
_LOOKS_EVERY_US = 5_000
# Intervals at the end of an epoch, in order.
_EPOCH_KINDS = (VALIDATION, CHECKPOINT, EPOCH)

Bools = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]


def record(job: Job, true: Timeline, clocks: list[HostClock]) -> Run:
    """Return the recorded run, without the ranks, rows and ends that were lost."""
    ranks = np.array([rank for rank in range(job.ranks) if rank not in set(job.lost_ranks)])
    return Run(
        id=job.run_id,
        source="simulated",
        logs=_logs(job, true, clocks, ranks),
        steps=_steps(job, true, clocks, ranks),
        intervals=_intervals(job, true, clocks, ranks),
    )


def _logs(job: Job, true: Timeline, clocks: list[HostClock], ranks: Ints) -> tuple[Log, ...]:
    hosts = job.hosts
    shared: dict[str, Any] = {
        "run_id": job.run_id,
        "run_name": job.run_name,
        "generation": job.generation,
        "part": 0,
        "first_step": job.first_step,
        "size": job.ranks,
        "process_start_us": _PROCESS_START_US,
        "batch_size": job.batch_size,
        "framework": "simulated",
        "model": "simulated",
        "gradient_bytes": job.communication.gradient_bytes,
        "synthetic": job.synthetic,
        "stamps": {
            "placed": ["data", "ready", "reduced"] if job.stamps else [],
            "reason": None if job.stamps else "simulated without stamps",
        },
    }
    if job.cores_per_host is not None:
        shared |= {
            "cpus_allowed": job.cores_per_host,
            "cpu_count": job.cores_per_host,
            "devices": ["CPU"],
            "threads": {"intra_op": 1},
        }
    # As they are read back: JSON has no tuples and no numbers as keys.
    given = _as_read(dict(job.facts))
    opened = true.start - _OPENED
    anchors = [int(clock.read(np.array(opened))) for clock in clocks]
    logs = []
    for rank in ranks.tolist():
        host = rank // job.ranks_per_host
        identity = {
            "rank": rank,
            "local_rank": rank % job.ranks_per_host,
            "host": hosts[host],
            "clock_domain": f"clock of {hosts[host]}",
            "anchor": {"monotonic_ns": anchors[host], "wall_ns": WALL_NS},
        }
        logs.append(
            Log(
                path=file_name(rank, job.generation, 0),
                rank=rank,
                generation=job.generation,
                part=0,
                facts=shared | identity | given,
                ended=rank not in job.cut_ranks,
            )
        )
    return tuple(logs)


def _as_read(facts: dict[str, Any]) -> dict[str, Any]:
    return header_facts(header(facts).partition("\n")[0].encode())


def _steps(job: Job, true: Timeline, clocks: list[HostClock], ranks: Ints) -> pa.Table:
    """Return the table of steps, one rank after the other."""
    kept = _kept(job, ranks)
    shape = (len(ranks), job.steps)
    count = shape[0] * shape[1] if kept is None else int(kept.sum())

    def column(values: Values, kind: pa.DataType) -> pa.Array:
        # No copy unless values are converted or left out.
        whole = np.broadcast_to(values.astype(kind.to_pandas_dtype(), copy=False), shape)
        return pa.array(whole.reshape(-1) if kept is None else whole[kept])

    def timestamps(name: str) -> pa.Array:
        if not job.stamps and name in ("data", "ready", "reduced"):
            return pa.nulls(count, pa.int64())
        return column(_on_clocks(job, getattr(true, name), clocks, ranks), pa.int64())

    factors = np.ones(job.ranks)
    factors[list(job.samples_factor)] = list(job.samples_factor.values())
    samples = np.rint(job.batch_size * factors).astype(np.int64)
    small = pa.int32()
    columns = {
        "log": column(np.arange(len(ranks))[:, None], small),
        "generation": column(np.array(job.generation), small),
        "rank": column(ranks[:, None], small),
        "step": column(job.first_step + np.arange(job.steps), pa.int64()),
        "epoch": column(true.epochs, small),
        **{name: timestamps(name) for name in ("begin", "data", "ready", "reduced", "end")},
        "micro": column(np.array(1), small),
        "samples": column(samples[ranks, None], pa.int64()),
        "elements": pa.nulls(count, pa.int64()),
    }
    if WORK in true.causes:
        more = 1 + true.causes[WORK][ranks] / nanoseconds(job.compute_ms)
        columns["elements"] = column(np.rint(samples[ranks, None] * _TOKENS * more), pa.int64())
    return pa.table(columns, schema=STEPS_SCHEMA)


def _kept(job: Job, ranks: Ints) -> Bools | None:
    """Mark the rows that are in the logs, ranks × steps; None if all are."""
    if not job.lost_rows and not job.cut_ranks:
        return None
    kept = np.ones((job.ranks, job.steps), bool)
    random = generator(job.seed, Purpose.LOST)
    if job.lost_rows:
        for rows in blocks(job.ranks, job.steps):
            size = (rows.stop - rows.start, job.steps)
            kept[rows] = random.random(size, dtype=np.float32) >= job.lost_rows
    for rank, steps in job.cut_ranks.items():
        kept[rank, steps:] = False
    return kept[ranks]


def _on_clocks(job: Job, times: Ints, clocks: list[HostClock], ranks: Ints) -> Ints:
    """Convert true times of the given ranks (ranks × anything) to their hosts' clocks."""
    host = job.host_index[ranks]
    if len(ranks) == job.ranks and all(clock.constant and not clock.offset for clock in clocks):
        return times
    read = times[ranks]
    for index, clock in enumerate(clocks):
        rows = slice(*np.searchsorted(host, [index, index + 1]))
        read[rows] = clock.read(read[rows])
    return read


def _intervals(job: Job, true: Timeline, clocks: list[HostClock], ranks: Ints) -> pa.Table:
    """Return the table of intervals: work at the ends of epochs, epochs, and ends of logs."""
    firsts = np.arange(0, job.steps, job.steps_per_epoch)
    nexts = np.append(firsts[1:], job.steps)[: len(firsts)]
    starts, ends, takes_part = [], [], []
    at = true.end[:, nexts - 1]
    for spent in epoch_end_parts(job).values():
        starts.append(at)
        at = at + spent[:, None]
        ends.append(at)
        takes_part.append(np.broadcast_to(spent[:, None] > 0, at.shape))
    starts.append(true.begin[:, firsts])
    ends.append(at)
    takes_part.append(np.ones(at.shape, bool))
    # The log is closed after the last interval, or at the start if there are no steps.
    closed = at[:, -1:] if job.steps else np.full((job.ranks, 1), true.start)

    def in_order(parts: Sequence[Values], last: Values) -> Values:
        """Order each rank's values by epoch, and by part within an epoch; append the end."""
        of_epochs = np.stack(parts, axis=2).reshape(job.ranks, len(parts) * len(firsts))
        return np.concatenate([of_epochs, last], axis=1)

    kinds = np.append(np.tile(_EPOCH_KINDS, len(firsts)), END)
    step = np.append(np.repeat(nexts, len(_EPOCH_KINDS)), job.steps)
    kept = in_order(takes_part, np.ones((job.ranks, 1), bool))
    for rank, steps in job.cut_ranks.items():
        kept[rank] &= (step < steps) & (kinds != END)
    kept = kept[ranks]

    def column(values: Values, kind: pa.DataType) -> pa.Array:
        return pa.array(np.broadcast_to(values, kept.shape)[kept], kind)

    small = pa.int32()
    epoch = np.append(np.repeat(np.arange(len(firsts)), len(_EPOCH_KINDS)), -1)
    columns = {
        "log": column(np.arange(len(ranks))[:, None], small),
        "generation": column(np.array(job.generation), small),
        "rank": column(ranks[:, None], small),
        "kind": column(kinds, pa.string()),
        "step": column(job.first_step + step, pa.int64()),
        "epoch": pc.if_else(column(epoch >= 0, pa.bool_()), column(epoch, small), None),
        "begin": column(_on_clocks(job, in_order(starts, closed), clocks, ranks), pa.int64()),
        "end": column(_on_clocks(job, in_order(ends, closed), clocks, ranks), pa.int64()),
    }
    of_epochs = table_of(INTERVALS_SCHEMA, columns)
    return pa.concat_tables([of_epochs, *_pauses(job, true, clocks, ranks)])


def _pauses(job: Job, true: Timeline, clocks: list[HostClock], ranks: Ints) -> Iterator[pa.Table]:
    """Yield the intervals of causes: pauses just before a rank's gradients are ready, and the others."""
    ready = _on_clocks(job, true.ready, clocks, ranks)
    for cause, added in true.causes.items():
        rank, step = np.nonzero(added[ranks]) if cause != WORK else (np.zeros(0, np.int64),) * 2
        end = ready[rank, step]
        begin = end - added[ranks][rank, step]
        number = np.ones(len(rank), np.int64)
        if cause == LOCK:
            which, begin, end, number = _looks(job, rank, begin, end)
            rank, step = rank[which], step[which]
        elif cause in BESIDE:
            # Affected steps that follow each other are beside one save.
            first = np.flatnonzero(
                (np.diff(rank, prepend=-1) != 0) | (np.diff(step, prepend=-2) != 1)
            )
            end = end[np.append(first[1:], len(end)) - 1] if len(first) else end
            rank, step, number = rank[first], step[first], number[first]
            begin = _on_clocks(job, true.begin, clocks, ranks)[rank, step]
        yield table_of(
            INTERVALS_SCHEMA,
            {
                "log": rank.astype(np.int32),
                "generation": np.full(len(rank), job.generation, np.int32),
                "rank": ranks[rank].astype(np.int32),
                "kind": pa.array([cause] * len(rank), pa.string()),
                "step": job.first_step + step,
                "begin": begin,
                "end": end,
                "steps": number,
            },
        )


def _looks(job: Job, rank: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Look at intervals of ranks at random moments, as recorders do at waits for Python's lock.

    Returns:
        For each interval that a look finds: its position, the moment of the first look, that moment plus
        the time that all its looks stand for, which is that since the look before, and their number.
    """
    random = generator(job.seed, Purpose.LOOKS)
    seen = [(np.zeros(0, np.int64),) * 4]
    for each in np.unique(rank).tolist():
        (of_rank,) = np.nonzero(rank == each)
        first, last = begin[of_rank[0]], end[of_rank[-1]]
        gaps = random.uniform(0.5, 1.5, 2 * (last - first) // (_LOOKS_EVERY_US * US) + 1)
        gap = whole_microseconds(gaps * _LOOKS_EVERY_US)
        moment = first + np.cumsum(gap)
        at = np.searchsorted(begin[of_rank], moment, "right") - 1
        inside = (at >= 0) & (moment < end[of_rank[at]])
        interval, first_look, number = np.unique(at[inside], return_index=True, return_counts=True)
        since = moment[inside][first_look]
        until = since + np.bincount(at[inside], gap[inside])[interval].astype(np.int64)
        seen.append((of_rank[interval], since, until, number))
    which, since, until, number = (np.concatenate(part) for part in zip(*seen, strict=True))
    return which, since, until, number
