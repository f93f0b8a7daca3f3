"""The contract of formats: they recognise a file, and return its contents as tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Ints
from stallscope.collector.store.generations import completions_of
from stallscope.run import (
    INTERVALS_SCHEMA,
    STEPS_SCHEMA,
    Event,
    Log,
    MeasuredInput,
    NetworkCheck,
    Problem,
    Series,
)

if TYPE_CHECKING:
    from .files.unpacking import Readable
    from .formats.flight_recorder.dump import Dump
    from .log_records import LogRecords

#: The schemas of a log's tables.
STEP_ROWS, INTERVAL_ROWS = (
    pa.schema(list(schema)[1:]) for schema in (STEPS_SCHEMA, INTERVALS_SCHEMA)
)

#: No job has more ranks: a larger number is damage, and would take memory for each of them.
MOST_RANKS = 1 << 20
#: The start of the name of a parser of the lines of a pattern.
PATTERN = "pattern:"
#: Called from time to time with the number of finished items.
UpdateProgress = Callable[[int], None]
#: Starts a display, given the name of the work and the number of items.
ShowProgress = Callable[[str, int], AbstractContextManager[UpdateProgress]]


@dataclass(frozen=True)
class Parsed:
    """One log: its description, steps, intervals (without the ``log`` column) and problems.

    ``more`` are further logs in the same file: of other ranks, or of a further fit. ``series`` are
    machine metrics in the file, ``series_problems`` name missing ones. Both are used even if the log
    itself is not.
    """

    log: Log
    run_id: str
    steps: pa.Table
    intervals: pa.Table
    problems: tuple[Problem, ...] = field(default=())
    more: tuple[Parsed, ...] = field(default=())
    series: tuple[Series, ...] = field(default=())
    series_problems: tuple[Problem, ...] = field(default=())

    @property
    def rows(self) -> int:
        """Count the steps."""
        return int(self.steps.num_rows)

    @property
    def step_range(self) -> tuple[int, int] | None:
        """Return the first and the last step; None without steps."""
        if not self.steps.num_rows:
            return None
        extremes = pc.min_max(self.steps["step"]).as_py()
        return int(extremes["min"]), int(extremes["max"])

    @property
    def last_end(self) -> int | None:
        """Return the end of the last step, in the log's own time; None without steps."""
        end = pc.max(self.steps["end"]).as_py()
        return None if end is None else int(end)

    def completions(self) -> tuple[Ints, Ints]:
        """Return step numbers, ascending, and when each step was completed; some may be missing."""
        return completions_of(self.steps)


@dataclass(frozen=True)
class Contents:
    """The contents of a file, by kind."""

    logs: tuple[Parsed, ...] = ()
    events: tuple[Event, ...] = ()
    #: Whether it is a profiler's trace: its log is used without logs of steps, otherwise its events.
    is_trace: bool = False
    #: Records of step logs, which may continue in other files.
    records: LogRecords | None = None
    measured_input: MeasuredInput | None = None
    network_check: NetworkCheck | None = None
    #: One rank's dump of PyTorch's Flight Recorder, to compare with those of other ranks.
    dump: Dump | None = None
    #: Machine metrics, with the id of their run.
    series: tuple[tuple[str, Series], ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of_logs(cls, first: Parsed) -> Contents:
        """Return the contents of a file that a parser has read."""
        logs = (first, *first.more)
        return cls(
            logs,
            series=tuple((log.run_id, series) for log in logs for series in log.series),
            problems=tuple(problem for log in logs for problem in log.series_problems),
        )

    @property
    def is_empty(self) -> bool:
        """Whether the file contains nothing of the format, except pieces that continue elsewhere."""
        records = self.records is not None and self.records.any_records
        measured = self.measured_input or self.network_check
        return not (self.logs or self.events or measured or self.dump or records)


class Format(ABC):
    """One kind of file. A new kind is one file with one subclass, listed in ``registry.py``."""

    #: The name in ``stallscope inspect``; parsers' names also work with ``--read-as``.
    name: ClassVar[str]
    #: A description in a few words.
    title: ClassVar[str]
    #: A note for ``stallscope inspect``.
    note: ClassVar[str | None] = None

    #: Whether files record each step, and contain no other formats.
    has_steps: ClassVar[bool] = False
    #: Whether it replaces a log of epochs in the same file, which is less precise.
    replaces_epochs: ClassVar[bool] = False

    #: Whether it searches the text of its files for the number of ranks itself.
    reads_stated_ranks: bool = False

    #: Whether its lines may start late: more of a file is searched if no other format is found.
    looks_further: ClassVar[bool] = False

    #: Whether a format that is found later in the file takes precedence.
    gives_way: ClassVar[bool] = False

    @abstractmethod
    def recognises(self, file_name: str, head: bytes) -> bool:
        """Whether a file with this name and these first bytes has this format."""

    @abstractmethod
    def read(self, path: str, data: bytes) -> Contents:
        """Read one file.

        Raises:
            UnreadableError: if the file has this format and cannot be read.
        """


class Parser(Format):
    """A format of logs. ``--read-as mypackage.module:Class`` imports a user's own."""

    #: The usual end of file names, for messages.
    suffix: ClassVar[str]
    #: Logs without steps only have epochs, and are used if no log has steps.
    has_steps: ClassVar[bool] = True
    #: Whether the first bytes identify the format beyond doubt.
    certain: ClassVar[bool] = True

    @abstractmethod
    def parse(self, path: str, data: bytes) -> Parsed:
        """Parse one file.

        Raises:
            UnreadableError: if nothing in it can be read as this kind of log.
        """

    def named(self) -> Parser:
        """Return the parser for files for which a user names this one."""
        return self

    def read(self, path: str, data: bytes) -> Contents:
        return Contents.of_logs(self.parse(path, data))


class ReadsBlocks(ABC):
    """A format of files that are read block by block, as they may be larger than memory."""

    @abstractmethod
    def read_blocks(self, path: str, file: Readable) -> Contents:
        """Read one file, opened at its start.

        Raises:
            UnreadableError: as ``Format.read`` does.
        """


class EmbeddedFormat(Format):
    """A format with lines anywhere among other output."""

    def recognises(self, file_name: str, head: bytes) -> bool:
        return True


class CompanionFormat(Format):
    """A format of files next to logs that add nothing to a run; ``stallscope inspect`` names it."""

    def read(self, path: str, data: bytes) -> Contents:
        return Contents()


# -- Make the tables of a log: steps and intervals, without the log's number in its run -----------


def cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast a column, unless it has the type: thousands of needless casts take a while."""
    return column if column.type == kind else column.cast(kind)


def table_of(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """Make a table of columns of equal length, ``rank`` among them; missing columns are null."""
    count = len(columns["rank"])
    nulls = {
        field.name: pa.nulls(count, field.type) for field in schema if field.name not in columns
    }
    arrays = {
        name: arrow.array(column) if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
    }
    return pa.table({**arrays, **nulls}).select(schema.names).cast(schema)


# -- Report the progress of long work to any display ----------------------------------------------


@contextmanager
def no_progress(_what: str, _count: int) -> Iterator[UpdateProgress]:
    """Show no progress."""
    yield ignore_progress


def ignore_progress(_done: int) -> None:
    """Ignore an update."""
