"""Offer a run to analysts: its steps, epochs, windows, events and machines as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from os import PathLike, fspath

import numpy as np
import pandas as pd

from stallscope import opening
from stallscope import run as recorded
from stallscope.errors import UsageError
from stallscope.exports.exported_run import ExportedRun, Selection, exported_run
from stallscope.formatting.lists import counted
from stallscope.formatting.plain import plain

from .steps import (
    MOST_ROWS,
    chosen_columns,
    epochs_frame,
    events_frame,
    frames_by_rank,
    machines_frame,
    no_steps,
    steps_frame,
    windows_frame,
)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The records of one job; ``open_run`` opens it.

    Every access to a property builds a new DataFrame that the caller may change. Values that were not
    measured are missing: NaN, ``pd.NA`` or ``pd.NaT``.
    """

    _recorded: recorded.Run

    @property
    def id(self) -> str:
        """The run's id."""
        return self._recorded.id

    @property
    def name(self) -> str:
        """The name that the user gave it, otherwise its id."""
        return self._recorded.name

    @property
    def source(self) -> str:
        """The place that its logs were read from."""
        return self._recorded.source

    @property
    def ranks(self) -> int:
        """The number of ranks that trained, with or without a log."""
        return self._recorded.size

    @property
    def hosts(self) -> list[str]:
        """The hosts with a log."""
        return self._recorded.hosts

    @property
    def synthetic(self) -> bool:
        """Whether it trained on synthetic data."""
        return self._recorded.synthetic

    @property
    def status(self) -> str:
        """``completed`` if every rank closed its last log, otherwise ``open``."""
        return self._recorded.status

    @property
    def started_at(self) -> datetime | None:
        """The start of the first log, in UTC; None if unknown."""
        return self._recorded.started_at

    @property
    def rows(self) -> int:
        """The number of recorded steps of all ranks: the rows of ``steps``."""
        return self._recorded.rows

    @property
    def problems(self) -> list[str]:
        """Parts of the logs that could not be read, a sentence each."""
        return [str(problem) for problem in self._recorded.problems]

    @property
    def steps(self) -> pd.DataFrame:
        """A row per rank and recorded step, with the rank's stages in milliseconds.

        Raises:
            UsageError: if the run has more than 5,000,000 rows; then use ``steps_of``.
        """
        if self.rows > MOST_ROWS:
            raise UsageError(
                f"{plain(self.name)}: run.steps would be {self.rows:,} rows, and holds at most "
                f"{MOST_ROWS:,}; choose what to read, for example "
                'run.steps_of(columns=["step_ms"], ranks=[0], steps=range(0, 1000))'
            )
        return self.steps_of()

    def steps_of(
        self,
        columns: Sequence[str] | None = None,
        ranks: Iterable[int] | None = None,
        steps: range | None = None,
    ) -> pd.DataFrame:
        """Return chosen columns, ranks and steps of ``steps``, whatever the size of the run.

        Args:
            columns: the columns; all without it.
            ranks: the ranks; all without it.
            steps: the step numbers, as ``range(first, last + 1)``; all without it.

        Raises:
            UsageError: if there is no such column, rank or step.
        """
        names = chosen_columns(columns)
        exported = self._selected(ranks, steps)
        return no_steps(names) if exported is None else steps_frame(exported, names)

    def steps_by_rank(
        self,
        columns: Sequence[str] | None = None,
        ranks: Iterable[int] | None = None,
        steps: range | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Yield ``steps_of`` rank by rank, so that only one rank's rows are in memory.

        Raises:
            UsageError: if there is no such column, rank or step.
        """
        names = chosen_columns(columns)
        exported = self._selected(ranks, steps)
        return iter(()) if exported is None else frames_by_rank(exported, names)

    @property
    def epochs(self) -> pd.DataFrame:
        """A row per epoch and rank: how long it took, its steps, validation and checkpoints."""
        return epochs_frame(self._recorded)

    @property
    def windows(self) -> pd.DataFrame:
        """A row per rank and line that a program printed about its steps; empty without such lines."""
        return windows_frame(self._recorded)

    @property
    def events(self) -> pd.DataFrame:
        """A row per event that other logs report: stalls, lost hosts, evictions."""
        return events_frame(self._recorded)

    @property
    def machines(self) -> pd.DataFrame:
        """A row per measurement of a machine over time: CPU, GPU, memory, network."""
        return machines_frame(self._recorded)

    def _selected(self, ranks: Iterable[int] | None, steps: range | None) -> ExportedRun | None:
        """Return the run on one time line with a selection; None if it has no steps."""
        if not self.rows:
            return None
        whole = self._time_line
        selection = replace(
            _selection(steps), ranks=None if ranks is None else frozenset(map(int, ranks))
        )
        numbers = np.concatenate([generation.aligned.steps for generation in whole.generations])
        selection.check(numbers, whole.ranks)
        return replace(whole, selection=selection)

    @cached_property
    def _time_line(self) -> ExportedRun:
        """Align all generations on one time line, once, because this takes most of the time."""
        return exported_run(self._recorded, Selection())

    def __repr__(self) -> str:
        return (
            f"Run({plain(self.name)!r}: {counted(self.ranks, 'rank')}, {counted(self.rows, 'row')} "
            "of steps)"
        )


#: A run, or a RUN argument of the commands: a folder, a file or a URL.
RunLike = Run | recorded.Run | str | PathLike[str]


def _selection(steps: range | None) -> Selection:
    if steps is None:
        return Selection()
    if steps.step != 1 or not len(steps):
        raise UsageError(f"steps={steps}: give consecutive steps, for example range(100, 200)")
    return Selection(first=steps.start, last=steps.stop - 1)


def open_run(source: str | PathLike[str], *, read_as: str | None = None) -> Run:
    """Open a run.

    Args:
        source: a folder with logs, a log file, a collected run, or a URL: a RUN argument of the
            commands.
        read_as: the name of the log format; detected by default.

    Raises:
        NotFoundError: if nothing is there, or if there are several runs.
        UnreadableError: if it cannot be read.
    """
    return Run(opening.open_run(fspath(source), read_as=read_as))


def as_run(run: RunLike) -> Run:
    """Return a run, and open it if necessary; errors are those of ``open_run``."""
    if isinstance(run, Run):
        return run
    return Run(run) if isinstance(run, recorded.Run) else open_run(run)
