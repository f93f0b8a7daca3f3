"""Simulate a job: its logs, and the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.run import Run

from .clocks import HostClock
from .draws import Ints, Purpose, generator, nanoseconds
from .faults import STAGES
from .job import Job
from .recording import record
from .timeline import BUCKET, Timeline, timeline
from .truth import Truth


@dataclass(frozen=True)
class Simulated:
    """A job, its recorded run, and the truth."""

    job: Job
    run: Run
    truth: Truth


def simulate(job: Job) -> Simulated:
    """Simulate a job; the same job always gives the same run and truth."""
    true = timeline(job)
    clocks = _host_clocks(job, true)
    return Simulated(job, record(job, true, clocks), _truth(true, clocks))


def _host_clocks(job: Job, true: Timeline) -> list[HostClock]:
    """Return the hosts' clocks, with the times of their changes."""
    offsets, drifts = job.clocks.draw(generator(job.seed, Purpose.CLOCKS), len(job.hosts))
    slews: list[list[tuple[int, int, float]]] = [[] for _ in job.hosts]
    jumps: list[list[tuple[int, int]]] = [[] for _ in job.hosts]
    for slew in job.clocks.slews:
        start = true.reduced_first[slew.first_step - 1] if slew.first_step else true.start
        slews[slew.host].append((int(start), int(true.reduced_first[slew.last_step]), slew.ppm))
    for jump in job.clocks.jumps:
        cell = (jump.host * job.ranks_per_host, jump.step)
        jumps[jump.host].append(
            (int(true.data[cell] + true.ready[cell]) // 2, nanoseconds(jump.ms))
        )
    return [
        HostClock(int(offset), float(drift), true.start, tuple(own_slews), tuple(own_jumps))
        for offset, drift, own_slews, own_jumps in zip(offsets, drifts, slews, jumps, strict=True)
    ]


def _truth(true: Timeline, clocks: list[HostClock]) -> Truth:
    # A stage without faults has zeros that take no memory.
    none = np.broadcast_to(np.int64(0), true.ready.shape)
    offsets = [clock.ahead(true.reduced_first) for clock in clocks]
    return Truth(
        input=_frozen(true.input),
        compute=_frozen(true.compute),
        other=_frozen(true.other),
        ready=_frozen(true.ready),
        reduced=_frozen(true.reduced),
        allreduce=true.allreduce,
        reduced_first=true.reduced_first,
        epochs=true.epochs,
        extra={name: _frozen(true.extra.get(name, none)) for name in (*STAGES, BUCKET)},
        clock_offset=np.stack(offsets, axis=1),
    )


def _frozen(times: Ints) -> Ints:
    """Transpose to steps × ranks and make read-only, as the run's table may share the memory."""
    times.flags.writeable = False
    return times.T
