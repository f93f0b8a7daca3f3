"""Offsets of clocks by wall time, for where a slow link makes completions late.

Behind a slow link the last piece of every allreduce arrives late, by the same time in every step: on
completions alone that looks like a wrong clock. Wall clocks do not know of links. They are used where
they lie within what the link explains; how wrong they are is the kernel's own bound, where something
synchronises them, and the link's delay otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.run import Log, Run

from .clocks import Clocks
from .links import links, slow_links

# More steps than this outside of what the link explains: then the wall clocks are wrong.
_MOST_OUTSIDE = 0.05
_CLOCK_ERROR = "host_clock_error"


@dataclass(frozen=True)
class WallClocks:
    """The wall clocks of a job's hosts, C of them, in the order of ``Clocks.names``."""

    #: By how much completions may be late behind the slowest link, nanoseconds.
    delay: float
    #: What must be subtracted from a clock's times to get the reference's, by wall time.
    offset: Ints
    #: The kernel's bound on the error of each offset; infinite where nothing synchronises a clock.
    error: Floats


def wall_clocks(run: Run, logs: Sequence[Log]) -> WallClocks | None:
    """Return the wall clocks of the hosts of a world whose links differ; None if completions suffice.

    Args:
        run: the run.
        logs: the last log of each of the world's ranks.
    """
    by_domain = {log.clock_domain: log for log in reversed(logs)}
    names = dict.fromkeys(log.clock_domain for log in logs)
    if len(names) < 2 or not all(log.has_wall_clock for log in logs):
        return None
    delay = _delay(run)
    if delay is None:
        return None
    first, *others = (by_domain[name] for name in names)
    offset = [first.wall_minus_monotonic - log.wall_minus_monotonic for log in (first, *others)]
    errors = [_error(run, log) for log in (first, *others)]
    return WallClocks(
        delay,
        np.array(offset, np.int64),
        np.array([0.0, *(errors[0] + error for error in errors[1:])]),
    )


def with_wall_clocks(clocks: Clocks, walls: WallClocks) -> Clocks:
    """Return clocks whose uncertainty has the delay of a slow link, on wall time where that fits."""
    systematic, offset = clocks.systematic.copy(), clocks.offset.copy(order="F")
    for c in range(1, len(clocks.names)):
        apart = np.abs(clocks.offset[:, c] - walls.offset[c])
        explained = apart <= walls.delay + 2 * clocks.statistical[c]
        if np.mean(~explained) <= _MOST_OUTSIDE:
            offset[:, c] = walls.offset[c]
            systematic[c] = max(systematic[c], min(walls.delay, walls.error[c]))
        else:
            systematic[c] = max(systematic[c], walls.delay)
    return replace(
        clocks, method="wall clocks", offset=offset, systematic=systematic, skew_seen=True
    )


def _delay(run: Run) -> float | None:
    """Return how late a piece of an allreduce is behind the slowest link; None if none is slow."""
    slow = slow_links(links(run))
    if slow is None:
        return None
    gradients = run.fact("gradient_bytes")
    # In a ring each rank has one piece per rank.
    piece = gradients / run.size if isinstance(gradients, (int, float)) else 0.0
    return max(
        link.round_trip_ms[2] * 1e6 + piece * 8 * 1e3 / max(link.mbit_s[0], 1e-3)
        for link in slow.links
    )


def _error(run: Run, log: Log) -> float:
    """Return the kernel's bound on the error of a host's wall clock, nanoseconds."""
    own = [one for one in run.series if one.name == _CLOCK_ERROR and one.node == log.host]
    return max((float(one.value.max()) * 1e6 for one in own), default=np.inf)
