"""Read the kernel's figures once a second, for lines of the log."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, List, Optional

from ..step_log.format import MachineRow
from . import host, process
from .connections import Connections
from .figures import FigureSource
from .gpus import source_of_gpu

_EVERY_NS = 1_000_000_000
# Tolerance for a flush that comes a little early.
_EARLY_NS = 50_000_000
# Facts about connections are totals, so a few are enough.
_FACTS_EVERY_NS = 30_000_000_000
# Slow sources are read so rarely that they cost this share of one core.
_SHARE = 0.0005


class Monitor:
    """Figures of one process, of its GPU and, on the first rank of each host, of the host.

    Args:
        local_rank: the rank among those of its host, if it is known; the first one also writes the
            host's figures.
    """

    def __init__(self, local_rank: Optional[int]) -> None:
        self._sources: List[FigureSource] = [*process.sources(), *host.sources_of_cgroup()]
        if not local_rank:
            self._sources += host.sources_of_host()
        with contextlib.suppress(Exception):  # there is no GPU, or no driver for it
            self._sources.append(source_of_gpu(local_rank or 0))
        self.columns = [
            "time_us",
            *(figure.name for source in self._sources for figure in source.figures),
        ]
        self._before: Dict[str, int] = {}
        self._last: Optional[int] = None
        self._due = [0] * len(self._sources)
        self._connections: Optional[Connections] = None
        self._look_due = self._facts_due = 0
        self._written: List[Dict[str, Any]] = []
        with contextlib.suppress(Exception):  # this system has no such counts
            self._connections = Connections()

    def row(self, now: int, at_the_end: bool = False) -> Optional[MachineRow]:
        """Return figures once a second, and at the end; None in between."""
        too_early = self._last is not None and now - self._last < _EVERY_NS - _EARLY_NS
        if too_early and not at_the_end:
            return None
        self._last = now
        cells: List[str] = []
        for at in range(len(self._sources)):
            cells += self._cells(at, now, at_the_end)
        return MachineRow(now, ",".join(cells))

    def connections(self, now: int, at_the_end: bool = False) -> Optional[Dict[str, Any]]:
        """Read the counts of connections to other hosts; return facts about them now and then."""
        if self._connections is None or (now < self._look_due and not at_the_end):
            return None
        begun = time.thread_time_ns()
        self._connections.look()
        cost = time.thread_time_ns() - begun
        self._look_due = now + max(_EVERY_NS - _EARLY_NS, int(cost / _SHARE))
        if now < self._facts_due and not at_the_end:
            return None
        totals = self._connections.totals()
        if totals == self._written:
            return None
        self._facts_due = now + _FACTS_EVERY_NS
        self._written = totals
        return {"connections": totals}

    def close(self) -> None:
        """Stop the sources' work in the background; files are closed with the monitor."""
        for source in self._sources:
            if source.close is not None:
                source.close()

    def _cells(self, at: int, now: int, at_the_end: bool) -> List[str]:
        source = self._sources[at]
        nothing = [""] * len(source.figures)
        if now < self._due[at] and not at_the_end:
            return nothing
        begun = time.thread_time_ns()
        try:
            values = source.read()
        except Exception:  # the file has gone or changed its format
            return nothing
        if source.is_slow:
            self._due[at] = now + int((time.thread_time_ns() - begun) / _SHARE)
        cells = []
        for figure, value in zip(source.figures, values):
            if value is None:
                cells.append("")
                continue
            value //= figure.divisor
            if figure.grows:
                before = self._before.get(figure.name)
                self._before[figure.name] = value
                # Growth counts from the first line.
                cells.append("" if before is None else str(value - before))
            else:
                cells.append(str(value))
        return cells
