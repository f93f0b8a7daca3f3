"""Ranks side by side: the table of steps as arrays of step × rank, on one clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.run import Run

from .clocks import HostClocks, align_clocks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Stands for "not measured" in arrays of int64.
NULL = np.iinfo(np.int64).min

_STAMPS = ("begin", "data", "ready", "reduced", "end")


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
    #: Per step, -1 where the recorder did not know.
    epochs: Ints
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    begin: Ints
    data: Ints
    ready: Ints
    reduced: Ints
    end: Ints
    samples: Ints
    micro: Ints
    #: Whether a new training session began with this step (a process, or a further fit).
    session_start: Bools
    intervals: Intervals
    clocks: HostClocks

    @property
    def measured(self) -> Bools:
        """Per step: whether every rank has all five stamps."""
        measured = np.ones(len(self.steps), bool)
        for name in _STAMPS:
            measured &= (getattr(self, name) != NULL).all(axis=1)
        return measured


def align(run: Run, generation: int) -> AlignedSteps:
    """One generation's steps, with the hosts' clocks brought together."""
    table = run.steps.filter(run.steps.column("generation").to_numpy() == generation)
    column = {
        name: table[name].cast(pa.int64()).fill_null(NULL).to_numpy()
        for name in ("step", "rank", "epoch", *_STAMPS, "micro", "samples", "log")
    }

    steps, row = _positions(column["step"])
    ranks, rank = np.unique(column["rank"], return_inverse=True)
    shape = (len(steps), len(ranks))

    def dense(name: str) -> Ints:
        array = np.full(shape, NULL)
        array[row, rank] = column[name]
        return array

    epochs = np.maximum(dense("epoch").max(axis=1, initial=NULL), -1)
    logs = dense("log")
    # A step from another log than the rank's step before it is the first of a session.
    session_start = np.ones(len(steps), bool)
    session_start[1:] = ((logs[1:] != logs[:-1]) & (logs[1:] != NULL) & (logs[:-1] != NULL)).any(1)

    last_log = {log.rank: log for log in run.logs if log.generation == generation}
    own = [last_log[int(r)] for r in ranks]
    aligned = AlignedSteps(
        generation=generation,
        steps=steps,
        epochs=epochs,
        ranks=tuple(int(r) for r in ranks),
        hosts=tuple(log.host for log in own),
        begin=dense("begin"),
        data=dense("data"),
        ready=dense("ready"),
        reduced=dense("reduced"),
        end=dense("end"),
        samples=dense("samples"),
        micro=dense("micro"),
        session_start=session_start,
        intervals=_intervals(run, generation, ranks),
        clocks=HostClocks.same(len(steps), len(ranks)),
    )
    domains = [log.clock_domain for log in own]
    return _on_one_clock(aligned, domains) if len(set(domains)) > 1 else aligned


def _positions(step: Ints) -> tuple[Ints, Ints]:
    """The different steps, ascending, and the position of each row's step among them."""
    if not len(step):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, last = int(step.min()), int(step.max())
    if last - first < 2 * len(step) + 1000:
        # Counting is ten times faster than sorting; gaps in the numbers may cost it some memory.
        present = np.zeros(last - first + 1, bool)
        present[step - first] = True
        position = np.cumsum(present) - 1
        return np.flatnonzero(present) + first, position[step - first]
    steps, row = np.unique(step, return_inverse=True)
    return steps, row


def _intervals(run: Run, generation: int, ranks: Ints) -> Intervals:
    table = run.intervals.filter(run.intervals.column("generation").to_numpy() == generation)
    kind = table["kind"].to_numpy(zero_copy_only=False).astype(str)
    rank = table["rank"].to_numpy().astype(np.int64)
    wanted = np.isin(kind, ("validation", "checkpoint")) & np.isin(rank, ranks)
    return Intervals(
        kind=kind[wanted],
        rank_index=np.searchsorted(ranks, rank[wanted]),
        step=table["step"].to_numpy()[wanted],
        begin=table["begin"].to_numpy()[wanted],
        end=table["end"].to_numpy()[wanted],
    )


def _on_one_clock(aligned: AlignedSteps, domains: list[str]) -> AlignedSteps:
    clocks = align_clocks(aligned.reduced, domains, NULL)
    shifted: dict[str, Any] = {
        name: np.where(getattr(aligned, name) == NULL, NULL, getattr(aligned, name) - clocks.offset)
        for name in _STAMPS
    }
    intervals = aligned.intervals
    at = np.clip(np.searchsorted(aligned.steps, intervals.step), 0, max(0, len(aligned.steps) - 1))
    shift = clocks.offset[at, intervals.rank_index] if len(at) else np.zeros(0, np.int64)
    return replace(
        aligned,
        **shifted,
        intervals=replace(intervals, begin=intervals.begin - shift, end=intervals.end - shift),
        clocks=clocks,
    )
