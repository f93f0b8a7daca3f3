"""Define events and measurements of machines during a run, from logs other than the step logs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Event:
    """Something that happened while a job ran, reported by a log other than the step logs."""

    #: ``stall``, ``host_blacklisted``, …
    kind: str
    #: The file that reports it.
    where: str
    #: A short description.
    what: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    #: Wall time, nanoseconds since 1970 in UTC; None if unknown.
    wall_ns: int | None = None
    #: The log's timestamp, taken as UTC, if the log has no time zone.
    local_ns: int | None = None
    #: How much later than its timestamp it may have happened.
    uncertainty_ns: int = 0
    #: The least time that it had lasted by then.
    waited_ns: int = 0
    #: Process numbers, if the log names processes instead of ranks.
    pids: tuple[int, ...] = ()
    #: The exit status of a process that ended; None for other events.
    status: int | None = None


# Compared by identity, because comparing arrays is ambiguous.
@dataclass(frozen=True, eq=False)
class Series:
    """Measurements of a machine over time, from a log other than the step logs."""

    #: The name in the log, without unit and place: ``gpu_0_utilization``.
    name: str
    #: ``%``, ``MB``, ``W``, …; empty if the name does not show it.
    unit: str
    #: The machine's name in the log, and the rank; None if unknown.
    node: str | None
    rank: int | None
    #: The file that has the measurements.
    where: str
    #: Wall times of the values, nanoseconds since 1970 in UTC, ascending. A value is about the time
    #: since the previous one.
    wall_ns: npt.NDArray[np.int64]
    #: The values; none is missing.
    value: npt.NDArray[np.float64]
