"""Bound the errors of clocks by how far links between hosts may delay completions.

Completions of one allreduce differ by about a round trip at most. That looks like an offset, so it is
part of a clock's error. Over a slow link the last piece of every allreduce arrives late, by the same
time in every step: on completions alone that looks like a wrong clock. Links do not affect wall clocks,
so these are used where they lie within what the slow link explains. Their error is the kernel's own
bound if something synchronises them, and the link's delay otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.run import Log, Run

from .clocks import Clocks
from .links import SlowLinks, links, slow_links

# If more steps than this are outside of what the link explains, the wall clocks are wrong.
_MOST_OUTSIDE = 0.05
_CLOCK_ERROR = "host_clock_error"


@dataclass(frozen=True)
class _WallClocks:
    """The wall clocks of a job's hosts, C of them, in the order of ``Clocks.names``."""

    #: Nanoseconds to subtract from a clock's times to get the reference's, by wall time.
    offset: Ints
    #: The kernel's bound on the error of each offset; infinite where nothing synchronises a clock.
    error: Floats


def corrected_by_links(clocks: Clocks, run: Run, logs: Sequence[Log]) -> Clocks:
    """Correct clocks from completions; leave them unchanged if nothing is known of the links.

    Args:
        clocks: the clocks.
        run: the run.
        logs: the last log of each of the generation's ranks.
    """
    known_links = links(run)
    if not known_links:
        return clocks
    slow = slow_links(known_links)
    if slow is None:
        # Three in four round trips are shorter.
        trip = max(link.round_trip_ms[2] for link in known_links)
        return _delayed(clocks, trip * 1e6)
    delay, walls = _delay_of_link(slow, run), _wall_clocks(run, logs)
    if walls is None:
        return _delayed(clocks, delay, completes_late=True)
    return _on_wall_clocks(clocks, delay, walls)


def _delayed(clocks: Clocks, delay: float, *, completes_late: bool = False) -> Clocks:
    """Return clocks with an error of up to this delay."""
    delays = np.full(len(clocks.names), delay)
    delays[0] = 0.0
    return replace(clocks, link_delay=delays, completes_late=completes_late)


def _on_wall_clocks(clocks: Clocks, delay: float, walls: _WallClocks) -> Clocks:
    """Return clocks on wall time where it is within a delay of the completions."""
    delayed = _delayed(clocks, delay, completes_late=True)
    assert delayed.link_delay is not None
    delays, offset = delayed.link_delay.copy(), clocks.offset.copy(order="F")
    for c in range(1, len(clocks.names)):
        apart = np.abs(clocks.offset[:, c] - walls.offset[c])
        explained = apart <= delay + 2 * clocks.statistical[c]
        if np.mean(~explained) <= _MOST_OUTSIDE:
            offset[:, c] = walls.offset[c]
            delays[c] = min(delay, walls.error[c])
    return replace(delayed, method="wall clocks", offset=offset, link_delay=delays)


def _delay_of_link(slow: SlowLinks, run: Run) -> float:
    """Return how late a piece of an allreduce arrives over slow links, nanoseconds."""
    gradients = run.fact("gradient_bytes")
    # In a ring each rank has one piece per rank.
    piece = gradients / run.size if isinstance(gradients, (int, float)) else 0.0
    return max(
        link.round_trip_ms[2] * 1e6 + piece * 8 * 1e3 / max(link.mbit_s[0], 1e-3)
        for link in slow.links
    )


def _wall_clocks(run: Run, logs: Sequence[Log]) -> _WallClocks | None:
    """Return the hosts' wall clocks; None if a log has none."""
    if not all(log.has_wall_clock for log in logs):
        return None
    by_domain = {log.clock_domain: log for log in reversed(logs)}
    first, *others = (by_domain[name] for name in dict.fromkeys(log.clock_domain for log in logs))
    offset = [first.wall_minus_monotonic - log.wall_minus_monotonic for log in (first, *others)]
    errors = [_error(run, log) for log in (first, *others)]
    summed = [0.0, *(errors[0] + error for error in errors[1:])]
    return _WallClocks(np.array(offset, np.int64), np.array(summed))


def _error(run: Run, log: Log) -> float:
    """Return the kernel's bound on the error of a host's wall clock, nanoseconds."""
    errors = [
        series for series in run.series if series.name == _CLOCK_ERROR and series.node == log.host
    ]
    return max((float(series.value.max()) * 1e6 for series in errors), default=np.inf)
