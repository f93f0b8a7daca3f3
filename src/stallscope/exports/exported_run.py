"""Put a run's generations on one time line, and select a part of it.

Within a generation, the hosts' clocks are aligned as in the analysis. Between generations, and between
hosts without a common completed collective, wall clocks are used. Time 0 is the start of the run's first
step, whatever part of the run is exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np

from stallscope.analysis.ledger.by_generation import Generations, first_log
from stallscope.analysis.ledger.change_points import ChangePoint, change_points
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.steps.alignment import AlignedSteps
from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Bools, Ints
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.lists import listed
from stallscope.formatting.plain import plain
from stallscope.run import Run

_METHODS = {
    "one clock": "all ranks share one clock",
    "completions": "clocks of hosts aligned by the completions of collectives",
    "wall clocks": "wall clocks of hosts, as a slow link makes completions late",
    "every step": "clocks of hosts too unsteady to follow: every step's completion is one moment",
}
_BY_WALL = "; where there is none, by wall clock"

# Real selections are smaller, and a typo must not fill the memory.
_MOST = 1_000_000


@dataclass(frozen=True)
class Generation:
    """One generation: S steps × R ranks."""

    aligned: AlignedSteps
    ledger: Ledger
    #: Ranks that trained, with or without a log.
    size: int
    #: Per rank, nanoseconds to add to its aligned times.
    shift: Ints

    @cached_property
    def in_ledger(self) -> Ints:
        """Return the position of each step in the ledger; -1 if it is not there."""
        steps = self.ledger.steps
        if not len(steps):
            return np.full(len(self.aligned.steps), -1)
        at = np.minimum(np.searchsorted(steps, self.aligned.steps), len(steps) - 1)
        return np.where(steps[at] == self.aligned.steps, at, -1)

    @property
    def reference_shift(self) -> int:
        """Nanoseconds to add to the ledger's times."""
        return int(self.shift[0])

    def on_line(self, times: Ints, rank: int) -> Ints:
        """Convert times of the rank at this position to the time line; NULL stays NULL."""
        return np.where(times == NULL, NULL, times + self.shift[rank])

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first start of a step and the last end of any event, on the time line."""
        aligned = self.aligned
        first = min(_bounds(self.on_line(column, r))[0] for r, column in enumerate(aligned.begin.T))
        last = first
        for stamps in (aligned.begin, aligned.ready, aligned.reduced, aligned.end):
            last = max(last, *(_bounds(self.on_line(c, r))[1] for r, c in enumerate(stamps.T)))
        between = aligned.intervals
        ends = between.end + self.shift[between.rank_index]
        return first, max(last, int(ends.max(initial=first)))


@dataclass(frozen=True)
class PlacedChange:
    """A change point: its generation, and its position in that generation's ledger."""

    generation: int
    at: int
    point: ChangePoint


@dataclass(frozen=True)
class ExportedRun:
    """A run on one time line, and the selection to export."""

    run: Run
    generations: tuple[Generation, ...]
    changes: tuple[PlacedChange, ...]
    selection: Selection
    #: Wall time at 0, nanoseconds since 1970; None if the logs do not show it.
    wall_ns: int | None
    #: How the hosts' clocks were aligned, in words.
    clocks: str

    @property
    def ranks(self) -> list[int]:
        """The exported ranks."""
        ranks = sorted(
            {rank for generation in self.generations for rank in generation.aligned.ranks}
        )
        return [rank for rank in ranks if len(self.selection.of([rank]))]

    @property
    def note(self) -> str:
        """Describe time 0, and how well the hosts' times can be compared."""
        began = ""
        if self.wall_ns is not None:
            began = f", {datetime.fromtimestamp(self.wall_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
        return f"time 0 is the start of the run's first step{began}; {self.clocks}"


def exported_run(run: Run, selection: Selection) -> ExportedRun:
    """Put a run on one time line.

    Raises:
        NotFoundError: if no step was recorded.
        UsageError: if the selection has steps or ranks that the run does not have.
    """
    if not run.steps.num_rows:
        raise NotFoundError(
            f"{plain(run.name)}: no step was recorded in these logs, so there is nothing to export"
        )
    generations = Generations.of(run)
    ranks = sorted({rank for aligned in generations.aligned for rank in aligned.ranks})
    selection.check(np.concatenate([aligned.steps for aligned in generations.aligned]), ranks)
    placed, wall = _one_after_the_other(run, generations)
    return ExportedRun(
        run, placed, _changes(generations), selection, wall, _how(generations.aligned)
    )


def _by_wall_clock(run: Run, aligned: AlignedSteps) -> Ints:
    """Return the shift to the first rank's clock if completions did not align a rank; otherwise 0."""
    last = run.last_logs_of(aligned.generation)
    # The clocks that ``align`` uses.
    logs = [last[rank] for rank in aligned.ranks]
    alone = ~np.isfinite(aligned.clocks.statistical)[aligned.clocks.of_rank]
    shift = np.zeros(len(logs), np.int64)
    for at in np.flatnonzero(alone):
        if logs[at].has_wall_clock and logs[0].has_wall_clock:
            shift[at] = logs[at].wall_minus_monotonic - logs[0].wall_minus_monotonic
    return shift


def _one_after_the_other(
    run: Run, generations: Generations
) -> tuple[tuple[Generation, ...], int | None]:
    """Return the generations on the time line, and the wall time at 0."""
    own_clocks = [
        Generation(aligned, ledger, run.size_of(aligned.generation), _by_wall_clock(run, aligned))
        for aligned, ledger in zip(generations.aligned, generations.ledgers, strict=True)
    ]
    first = first_log(run, generations.aligned[0])
    zero = own_clocks[0].span[0]
    placed: list[Generation] = []
    for generation in own_clocks:
        log = first_log(run, generation.aligned)
        shift = -zero
        if log.has_wall_clock and first.has_wall_clock:
            shift += run.wall_offset(log) - run.wall_offset(first)
        begin = generation.span[0] + shift
        if placed:
            # Generations must not overlap if a clock was set between them.
            shift += max(0, placed[-1].span[1] - begin)
        placed.append(replace(generation, shift=generation.shift + shift))
    wall = zero + run.wall_offset(first) if first.has_wall_clock else None
    return tuple(placed), wall


def _changes(generations: Generations) -> tuple[PlacedChange, ...]:
    """Find change points of the steady steps of generations with the same ranks as the last."""
    if generations.steady is None:
        return ()
    # A repeated step number means the last one.
    place = {
        int(step): (index, at)
        for index in generations.kept
        for at, step in enumerate(generations.ledgers[index].steps)
    }
    return tuple(
        PlacedChange(*place[point.step], point) for point in change_points(generations.steady)
    )


def _how(aligned: Sequence[AlignedSteps]) -> str:
    """Say how clocks were aligned."""
    clocks = [generation.clocks for generation in aligned]
    methods = dict.fromkeys(_METHODS[clock.method] for clock in clocks)
    alone = any(not np.isfinite(clock.statistical).all() for clock in clocks)
    return " and ".join(methods) + (_BY_WALL if alone else "")


def _bounds(times: Ints) -> tuple[int, int]:
    """Return the smallest and the largest measured value; reversed extremes without any."""
    known = times[times != NULL]
    wide = 2**62
    return (int(known.min()), int(known.max())) if len(known) else (wide, -wide)


# -- Select the steps and ranks to export ---------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Steps from ``first`` to ``last``, inclusive, and ranks; None selects all."""

    first: int | None = None
    last: int | None = None
    ranks: frozenset[int] | None = None

    def steps(self, numbers: Ints) -> Bools:
        """Mark the selected step numbers."""
        chosen = np.ones(len(numbers), bool)
        if self.first is not None:
            chosen &= numbers >= self.first
        if self.last is not None:
            chosen &= numbers <= self.last
        return chosen

    def of(self, ranks: Sequence[int]) -> Ints:
        """Return the positions of the selected ranks."""
        meant = [at for at, rank in enumerate(ranks) if self.ranks is None or rank in self.ranks]
        return np.array(meant, np.int64)

    def check(self, steps: Ints, ranks: Sequence[int]) -> None:
        """Check the selection against the steps and ranks of a run.

        Args:
            steps: the numbers of all steps, at least one.
            ranks: all ranks that recorded steps.

        Raises:
            UsageError: if it selects nothing, or a rank without steps.
        """
        if not self.steps(steps).any():
            words = [
                *([] if self.first is None else [f"from {self.first}"]),
                *([] if self.last is None else [f"to {self.last}"]),
            ]
            raise UsageError(
                f"no step {' '.join(words)}: the run has steps {steps.min()} to {steps.max()}"
            )
        unknown = sorted((self.ranks or frozenset()) - set(ranks))
        if unknown:
            recorded = listed("rank", sorted(ranks))
            raise UsageError(f"no steps of {listed('rank', unknown)}: the run has {recorded}")


def parse_ranks(text: str) -> frozenset[int]:
    """Parse a list of ranks such as ``0,3,8-15``.

    Raises:
        UsageError: if it is not such a list.
    """
    ranks: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise UsageError(f"--ranks {text}: give ranks and ranges, for example 0,3,8-15")
        low, high = int(first), int(last if dash else first)
        if not low <= high < low + _MOST:
            raise UsageError(f"--ranks {text}: {word.strip()} is no range of ranks")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
