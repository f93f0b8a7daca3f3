"""Collect the contents of files, and make runs of them in limited memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.memory import FEWEST_ROWS, Constants, SharedChunks
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError
from stallscope.formatting.lists import capitalised, joined
from stallscope.run import (
    TIMESTAMPS,
    Event,
    MeasuredInput,
    NetworkCheck,
    Problem,
    Run,
    Series,
    newest_first,
)

from ..base import STEP_ROWS, Contents, Format, Parsed, Parser
from ..files.unpacking import TRUNCATED, plain_text
from ..formats.step_log.step_log_parser import StepLogParser
from ..log_records import LogRecords
from ..registry import HEAD_BYTES, embedded, recognise
from .companion_records import with_events, with_input_times, with_network_checks, with_series
from .grouping import group

if TYPE_CHECKING:
    from ..formats.flight_recorder import Dump, DumpComparison

# Collectives that are named where dumps have no logs next to them.
_MOST_STALLS = 3
#: The messages about files with the name of a step log and without its text.
EMPTY_STEP_LOG = "an empty step log"
DAMAGED_STEP_LOG = "a damaged step log: it does not begin with a step log's first line"
#: The message about a file that is not a log.
NO_LOG = "no log that Stallscope knows; left alone"

# Logs with fewer bytes together are joined quickly.
_FEWEST_BYTES = 2**25
# Logs have lines of different lengths.
_MORE_ROWS = 1.1

# -- Keep the steps of logs while files are read, so that joining them takes little memory --------


class StepMemory:
    """Memory for the steps of logs, in the order of reading.

    Timestamps of all logs are contiguous; steps, epochs and samples that are equal in consecutive logs
    are stored once. With the parsers' tables instead, a report needs 1.8 × the memory (1,000 ranks ×
    10,000 steps: 1.71 GB against 0.95 GB); with their timestamps only, 1.3 ×.

    Args:
        size: the approximate size of all logs, bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._timestamps: dict[str, _Contiguous] = {}
        self._shared: dict[str, SharedChunks] = {}

    def kept(self, log: Parsed) -> Parsed:
        """Return a log with its steps in this memory; the same one if moving them is not worth it."""
        steps = log.steps
        if self._size < _FEWEST_BYTES or steps.num_rows < FEWEST_ROWS or steps.schema != STEP_ROWS:
            return log
        if not self._timestamps:
            self._begin(int(steps.num_rows * max(1.0, self._size / max(log.log.size, 1))))
        columns = [self._chunks(name, steps[name]) for name in STEP_ROWS.names]
        return replace(log, steps=pa.table(columns, schema=STEP_ROWS), more=())

    def _begin(self, rows: int) -> None:
        rows = int(rows * _MORE_ROWS)
        self._timestamps = {name: _Contiguous(rows) for name in TIMESTAMPS}
        constants = {kind: Constants(kind) for kind in STEP_ROWS.types}
        self._shared = {field.name: SharedChunks(constants[field.type]) for field in STEP_ROWS}

    def _chunks(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if column.null_count:
            return column
        if name in self._timestamps:
            chunks = [self._timestamps[name].add(chunk) for chunk in column.chunks]
        else:
            shared = self._shared[name]
            chunks = [piece for chunk in column.chunks for piece in shared.kept(chunk)]
        return pa.chunked_array(chunks, column.type)


class _Contiguous:
    """An array that is filled from its start; untouched memory is not allocated.

    Args:
        rows: the approximate number of rows.
    """

    def __init__(self, rows: int) -> None:
        self._values, self._filled = np.empty(rows, np.int64), 0

    def add(self, chunk: pa.Array) -> pa.Array:
        """Return a copy of a chunk, right after the one before it in memory."""
        if self._filled + len(chunk) > len(self._values):
            # There are more rows than expected.
            self._values, self._filled = np.empty(max(len(self._values), len(chunk)), np.int64), 0
        copy = self._values[self._filled : self._filled + len(chunk)]
        copy[:] = arrow.numbers(chunk)
        self._filled += len(chunk)
        return arrow.array(copy)


@dataclass(frozen=True)
class Identified:
    """The format of a file, None if it is unknown, and the logs in the file."""

    format: Format | None
    logs: tuple[Parsed, ...] = ()


@dataclass
class Reading:
    """Everything that was read so far.

    Args:
        forced: the parser for every file, whatever the file looks like.
        memory: keeps the steps of the logs.
    """

    forced: Parser | None = None
    memory: StepMemory = field(default_factory=lambda: StepMemory(0))
    parsed: list[Parsed] = field(default_factory=list)
    #: Logs of epochs, with the places of their files.
    epochs_only: list[tuple[str, Parsed]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    #: Warnings about logs and folders that are in no run, for all commands.
    place_warnings: list[str] = field(default_factory=list)
    #: Files that are not logs.
    no_logs: list[str] = field(default_factory=list)
    failures: list[StallscopeError] = field(default_factory=list)
    records: LogRecords = field(default_factory=LogRecords)
    measured: list[MeasuredInput] = field(default_factory=list)
    network_checks: list[NetworkCheck] = field(default_factory=list)
    #: Dumps of PyTorch's Flight Recorder.
    dumps: list[Dump] = field(default_factory=list)
    #: A sentence on files that belong next to logs, if there are no logs.
    without_logs: str | None = None
    #: Messages on failures and ends, if there are no logs.
    messages: str = ""
    #: Profilers' traces, with the places of their files.
    traces: list[tuple[str, Contents]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    #: Machine metrics, with the ids of the runs that they were logged for.
    series: list[tuple[str, Series]] = field(default_factory=list)

    def read_ahead(self, name: str, data: bytes) -> Contents | None:
        """Read a file that is a step log; None for any other file. Thread-safe.

        Raises:
            UnreadableError: if it cannot be read.
        """
        file_format = self.forced or recognise(name, data[:HEAD_BYTES])
        return file_format.read(name, data) if isinstance(file_format, StepLogParser) else None

    def add_file(
        self, name: str, where: str, data: bytes, contents: Contents | None = None
    ) -> Identified:
        """Read one file and add its contents.

        Args:
            name: of the file, relative to the place that the user named.
            where: the full path or URL, from which runs without an id get one.
            data: the file's bytes; only its first ones if its contents are given.
            contents: the contents, if they were read ahead.

        Raises:
            UnreadableError: if the file looks like a log and cannot be read.
        """
        data = plain_text(data)
        file_format = self.forced or recognise(name, data[:HEAD_BYTES])
        formats: list[Format] = []
        logs: tuple[Parsed, ...] = ()
        for candidate in self._formats_in(file_format):
            own_contents = contents or candidate.read(name, data)
            if own_contents.logs and not (candidate.has_steps or candidate.reads_stated_ranks):
                from .epoch_runs import with_stated_ranks

                with_sizes = tuple(with_stated_ranks(name, own_contents.logs, data))
                own_contents = replace(own_contents, logs=with_sizes)
            self._add(where, own_contents, has_steps=candidate.has_steps)
            logs += own_contents.logs
            if not own_contents.is_empty:
                formats.append(candidate)
                if candidate.replaces_epochs:
                    break
        if file_format is None and not formats:
            notes = unknown_file_notes(name, data)
            if NO_LOG in notes:
                self.no_logs.append(name)
            else:
                self.problems += [Problem(name, note) for note in notes]
                self.place_warnings += [f"{where}: {note}; left out" for note in notes]
        return Identified(formats[-1] if formats else file_format, logs)

    def _formats_in(self, file_format: Format | None) -> list[Format]:
        """Return the formats to look for in a file, that of the whole file last."""
        if file_format is not None and file_format.has_steps:
            return [file_format]
        anywhere = [
            candidate for candidate in embedded() if not (self.forced and candidate.replaces_epochs)
        ]
        return [*anywhere, *([file_format] if file_format else [])]

    def _add(self, where: str, contents: Contents, *, has_steps: bool) -> None:
        if contents.is_trace:
            self.traces.append((where, contents))
            return
        if has_steps:
            self.parsed += map(self.memory.kept, contents.logs)
        else:
            self.epochs_only += [(where, log) for log in contents.logs]
        self.events += contents.events
        self.series += contents.series
        self.problems += contents.problems
        if contents.measured_input is not None:
            self.measured.append(contents.measured_input)
        if contents.network_check is not None:
            self.network_checks.append(contents.network_check)
        if contents.dump is not None:
            self.dumps.append(contents.dump)
        if contents.records is not None:
            self.records.merge(contents.records)

    def merge(self, reading: Reading) -> None:
        """Add the contents of another reading, except the records of step logs."""
        for name, values in vars(self).items():
            if isinstance(values, list):
                values += getattr(reading, name)

    def truncated(self, name: str) -> None:
        """Report a compressed file that is incomplete."""
        self.problems.append(Problem(name, TRUNCATED))

    def failed(self, name: str, error: StallscopeError, where: str = "") -> None:
        """Report a file that is damaged, or gone since the files were listed.

        Args:
            where: the file's full path or URL, which the error may start with.
        """
        self.failures.append(error)
        what = str(error).removeprefix(f"{where}: ").removeprefix(f"{name}: ")
        self.problems.append(Problem(name, what))
        self.place_warnings.append(f"{where or name}: {what}; left out")

    def records_logs(self) -> list[Parsed]:
        """Parse the step logs in the records that were found."""
        logs = []
        for name, data in self.records.logs():
            try:
                logs.append(StepLogParser().parse(name, data))
            except UnreadableError as error:
                self.failed(name, error)
        self.problems += self.records.problems
        return logs

    def runs(self, where: str, records: Sequence[Parsed]) -> list[Run]:
        """Make runs of all contents, the newest first.

        Args:
            where: the place that was read.
            records: the result of ``records_logs``.
        """
        parsed = [*self.parsed, *self._not_in_files(records)]
        self.problems += _no_log_problems(self.no_logs)
        compared = self._compared_dumps()
        if parsed:
            self.events += [event for _, trace in self.traces for event in trace.events]
        elif self.traces:
            parsed = self._traced()
        if self.epochs_only:
            parsed += self._of_epochs(parsed)
        stalls = () if compared is None else compared.events
        if compared is not None and not parsed:
            self.without_logs = _dumps_alone(where, compared)
            self.problems += [Problem(event.where, event.what) for event in stalls]
        elif (self.network_checks or self.measured) and not parsed:
            self.without_logs = _measured_alone(where, bool(self.network_checks))
        elif self.events and not parsed:
            from ..formats.job_messages import in_words

            self.messages = in_words(self.events)
        self.parsed = []
        runs = newest_first(group(where, _taken(parsed), self.problems)) if parsed else []
        if self.place_warnings:
            runs = [replace(run, place_warnings=tuple(self.place_warnings)) for run in runs]
        runs = with_events(with_input_times(runs, self.measured), (*self.events, *stalls))
        return with_series(with_network_checks(runs, self.network_checks), self.series)

    def _of_epochs(self, step_logs: Sequence[Parsed]) -> list[Parsed]:
        """Return the logs of epochs that are runs, and report those next to logs of steps."""
        from .epoch_runs import as_runs, in_other_folders, unused_epoch_logs

        runs, next_to_steps = in_other_folders(self.epochs_only, step_logs)
        unused = unused_epoch_logs(next_to_steps)
        if unused:
            self.problems += [problem for _, problem in unused]
            places = joined([place for place, _ in unused])
            self.place_warnings.append(f"{places}: {unused[0][1].what}")
        try:
            return as_runs(runs) if runs else []
        except NotFoundError as error:
            self.failures.append(error)
            return []

    def _compared_dumps(self) -> DumpComparison | None:
        """Compare the dumps, if there are any, and add the problems with them."""
        if not self.dumps:
            return None
        from ..formats.flight_recorder import compare

        compared = compare(self.dumps)
        self.problems += compared.problems
        return compared

    def _traced(self) -> list[Parsed]:
        """Return the logs of traces; the traces of a folder are one run."""
        from ..formats.kineto import of_one_run
        from .epoch_runs import named_by_place

        runs: dict[str, list[Parsed]] = defaultdict(list)
        for where, trace in self.traces:
            for log in trace.logs:
                named = named_by_place(log, where.rpartition("/")[0], otherwise="traces")
                runs[named.run_id].append(named)
        return [log for logs in runs.values() for log in of_one_run(logs)]

    def _not_in_files(self, records: Sequence[Parsed]) -> list[Parsed]:
        """Return the logs that were only printed; ``sink="both"`` also writes them into files."""
        files = {_key(log): log.rows for log in self.parsed}
        return [log for log in records if log.rows > files.get(_key(log), -1)]


def _dumps_alone(where: str, compared: DumpComparison) -> str:
    sentences = [stall.what for stall in (compared.events or compared.problems)[:_MOST_STALLS]]
    what = ". ".join(map(capitalised, sentences)) or "No rank is missing in a collective"
    return f"{where}: dumps of PyTorch's Flight Recorder, and no logs next to them. {what}"


def _measured_alone(where: str, network: bool) -> str:
    what = "of a network" if network else "of a loader"
    return (
        f"{where}: a measurement {what}, and no logs of a run; put its file next to the step logs of "
        "the run that it is for"
    )


def _taken(logs: list[Parsed]) -> Iterator[Parsed]:
    """Yield the logs of a list and remove them from it, to free their memory."""
    logs.reverse()
    while logs:
        yield logs.pop()


def _no_log_problems(names: Sequence[str]) -> list[Problem]:
    """Return one problem for all files that are not logs: a folder may have thousands."""
    if len(names) < 2:
        return [Problem(name, NO_LOG) for name in names]
    # Folders may have names that an anonymous report must not show.
    shown = joined([PurePath(name).name for name in names])
    return [Problem(f"{len(names):,} files", f"{NO_LOG}: {shown}")]


def unknown_file_notes(name: str, data: bytes) -> tuple[str, ...]:
    """Return the message about a file of an unknown format; none about an empty one.

    Programs without errors leave an empty stderr for each rank.
    """
    if name.endswith(StepLogParser.suffix):
        return (DAMAGED_STEP_LOG if data else EMPTY_STEP_LOG,)
    return (NO_LOG,) if data else ()


def _key(parsed: Parsed) -> tuple[str, int, int, int]:
    return parsed.run_id, parsed.log.generation, parsed.log.rank, parsed.log.part
