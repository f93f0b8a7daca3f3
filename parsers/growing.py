"""Read the step logs of a place repeatedly, and only the new rows; follow a run with them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.collector.sources.source import SourceFile, bytes_of
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.run import Problem, Run

from .base import Contents, Parsed
from .files.unpacking import Unpacked, unpacked_whole
from .formats.step_log.machine_lines import MARK, continued
from .formats.step_log.step_log_parser import MAGIC, StepLogParser, is_joined, torn_lines
from .reader import Reads, read_in_blocks, read_in_order
from .runs.grouping import group
from .runs.reading import Reading

# Lines of a step log that are not rows.
_COMMENT = re.compile(rb"^#.*\n", re.MULTILINE)
# The last lines of machine figures are read again: growth of a rare figure counts from its last line.
_FIGURES_AGAIN = 16
# The last old bytes are compared: if they differ, the log was started again.
_OVERLAP = 4096
# The most problems to keep, the last ones, besides torn lines.
_MOST_PROBLEMS = 10
_PARSER = StepLogParser()

#: The most rows of all ranks together to keep; the same for steps of a rank.
MOST_ROWS = 200_000
_MOST_STEPS = 2_000
_FEWEST_STEPS = 60
# Contains the header and the facts of a log's first steps; a row has at most 200 bytes.
_HEAD_BYTES = 256 * 1024
_ROW_BYTES = 200


@dataclass(frozen=True)
class ReadLog:
    """A step log up to its last whole line, with all rows or the last ones."""

    #: The file's when it was listed.
    size: int
    version: str
    #: Lines that describe the rows: header, facts, columns.
    head: bytes
    #: The last lines of machine figures.
    figures: tuple[bytes, ...]
    #: The number of torn lines in the head.
    torn: int
    #: Where the first incomplete line starts, and the bytes before it.
    offset: int
    end: bytes
    parsed: Parsed
    #: The same log with the incomplete line counted as torn.
    shown: Parsed

    @classmethod
    def of(
        cls, file: SourceFile, head: bytes, rows: bytes, offset: int, parsed: Parsed, shown: Parsed
    ) -> ReadLog:
        """Return the state after reading a log.

        Args:
            head: the lines that describe the rows.
            rows: the last rows.
            offset: where the rows end in the file.
            parsed: the log of whole lines.
            shown: the log with an incomplete line counted.
        """
        figures = _figures_in(head + rows)
        head = b"".join(line for line in head.splitlines(True) if not line.startswith(MARK))
        head += facts_in(rows)
        torn = _PARSER.parse(file.name, head).log.torn
        end = rows[-_OVERLAP:]
        return cls(file.size, file.version, head, figures, torn, offset, end, parsed, shown)

    def read_on(self, file: SourceFile) -> ReadLog | None:
        """Read the new lines; None if the log must be read from its start."""
        if file.version and (file.size, file.version) == (self.size, self.version):
            return self
        if file.size < self.offset:
            return None
        data = file.read(self.offset - len(self.end))
        if not data.startswith(self.end):
            return None
        new = data[len(self.end) :]
        whole = new[: new.rfind(b"\n") + 1]
        if MAGIC in new:
            return None  # another log was appended
        offset = self.offset + len(whole)
        try:
            rows = _PARSER.parse(file.name, self.head + b"".join(self.figures) + whole)
        except UnreadableError:
            return None  # reading the whole log reports the error
        parsed = self._joined(rows, offset)
        if parsed is None:
            return None
        shown = _with_torn(parsed, parsed.log.torn + 1, self.offset + len(new))
        facts = facts_in(whole)
        return replace(
            self,
            size=file.size,
            version=file.version,
            head=self.head + facts,
            figures=(*self.figures, *_figures_in(whole))[-_FIGURES_AGAIN:],
            torn=_PARSER.parse(file.name, self.head + facts).log.torn if facts else self.torn,
            offset=offset,
            end=(self.end + whole)[-_OVERLAP:],
            parsed=parsed,
            shown=shown if len(new) > len(whole) else parsed,
        )

    def last(self, steps: int) -> ReadLog:
        """Return the state with only the last steps."""
        rows = self.parsed.steps
        if rows.num_rows <= steps:
            return self
        kept = rows.slice(rows.num_rows - steps).combine_chunks()
        between = self.parsed.intervals
        between = between.filter(pc.greater_equal(between["step"], kept["step"][0]))
        return replace(
            self,
            parsed=replace(self.parsed, steps=kept, intervals=between),
            shown=replace(self.shown, steps=kept, intervals=between),
        )

    def _joined(self, new: Parsed, size: int) -> Parsed | None:
        """Add new rows; None if new facts change what the old rows mean."""
        old = self.parsed
        if _place(new) != _place(old):
            return None
        joined = replace(
            new,
            log=replace(new.log, ended=old.log.ended or new.log.ended),
            steps=pa.concat_tables([old.steps, new.steps]).combine_chunks(),
            intervals=pa.concat_tables([old.intervals, new.intervals]).combine_chunks(),
            problems=(*other_problems(old), *other_problems(new))[-_MOST_PROBLEMS:],
            series=continued(old.series, new.series),
        )
        # Torn lines of the head are already counted.
        return _with_torn(joined, old.log.torn + new.log.torn - self.torn, size)


class Growing(Reads):
    """Reads the files of one place in this process, and keeps the contents of step logs.

    Args:
        most_steps: the number of last steps of each log to keep; None keeps all.
    """

    def __init__(self, most_steps: int | None = None) -> None:
        self._most_steps = most_steps
        self._logs: dict[str, ReadLog] = {}

    def read(self, reading: Reading, files: Sequence[SourceFile], *, local: bool) -> None:
        read_in_order(reading, files, partial(self._ahead, reading), local=local)
        names = {file.name for file in files}
        self._logs = {
            name: known if self._most_steps is None else known.last(self._most_steps)
            for name, known in self._logs.items()
            if name in names
        }

    def _ahead(self, reading: Reading, file: SourceFile) -> tuple[Unpacked, Contents | None]:
        """Return the head of a step log with its contents, or all bytes of another file."""
        known = self._logs.pop(file.name, None)
        grown = None if known is None or reading.forced is not None else known.read_on(file)
        if grown is None or other_problems(grown.parsed):
            in_blocks = read_in_blocks(reading, file)
            if in_blocks is not None:
                return in_blocks
            data = file.read()
            whole = unpacked_whole(file.where, data)
            contents = reading.read_ahead(file.name, whole.data)
            # Compressed files, and those of a user's parser, are always read as a whole.
            plain = whole.data is data and reading.forced is None
            grown = _first_read(contents.logs[0], file, data) if plain and contents else None
            if grown is None:
                return whole, contents
        self._logs[file.name] = grown
        return Unpacked(grown.head, False), Contents.of_logs(grown.shown)


def _first_read(parsed: Parsed, file: SourceFile, data: bytes) -> ReadLog | None:
    """Return the state of a log that was read as a whole.

    None if it has no columns yet, or shares its file with other logs.
    """
    if parsed.more or other_problems(parsed):
        return None
    offset = data.rfind(b"\n") + 1
    head = head_of(data[:offset])
    if not head or head[head.rfind(b"\n", 0, -1) + 1 :].startswith(b"#"):
        return None
    whole = _with_torn(parsed, parsed.log.torn - (offset < len(data)), offset)
    return ReadLog.of(file, head, data[len(head) : offset], offset, whole, parsed)


def facts_in(text: bytes) -> bytes:
    """Return the lines that describe rows: all comments except machine figures."""
    return b"".join(line for line in _COMMENT.findall(text) if not line.startswith(MARK))


def _figures_in(text: bytes) -> tuple[bytes, ...]:
    figures = [line for line in _COMMENT.findall(text) if line.startswith(MARK)]
    return tuple(figures[-_FIGURES_AGAIN:])


def head_of(start: bytes) -> bytes:
    """Return header, facts and columns: all lines before the first row."""
    end = 0
    while end < len(start):
        line_end = start.index(b"\n", end) + 1
        comment = start[end : end + 1] == b"#"
        end = line_end
        if not comment:
            break
    return start[:end]


def other_problems(parsed: Parsed) -> list[Problem]:
    """Return a log's problems without its torn lines."""
    torn = torn_lines(parsed.log)
    return [problem for problem in parsed.problems if problem not in torn]


def _place(parsed: Parsed) -> tuple[str, int, int, int, int]:
    log = parsed.log
    return parsed.run_id, log.rank, log.generation, log.part, log.anchor


def _with_torn(parsed: Parsed, torn: int, size: int) -> Parsed:
    log = replace(parsed.log, torn=torn, size=size)
    return replace(parsed, log=log, problems=(*torn_lines(log), *other_problems(parsed)))


# -- Follow a run while it is recorded: read new rows only, and keep only the last steps ----------
#
# The cost of an update depends on what was written since the last one, not on the length of the
# run.


class Follower:
    """Follows the logs of one run in a local folder. For one thread at a time.

    Args:
        folder: the folder of the logs.
        run_id: the id of the run; logs of other runs in the folder are ignored.
        most_rows: the most rows of all ranks together to keep.
    """

    def __init__(self, folder: Path, run_id: str, most_rows: int = MOST_ROWS) -> None:
        self._folder = folder
        self._run_id = run_id
        self._most_rows = most_rows
        self._logs: dict[str, ReadLog] = {}
        self._others: set[str] = set()

    def look(self) -> bool:
        """Read new rows, and return whether there were any.

        Raises:
            NotFoundError: if the folder has gone.
        """
        try:
            with os.scandir(self._folder) as entries:
                file_names = sorted(entry.name for entry in entries if entry.is_file())
        except OSError as error:
            raise NotFoundError(
                f"{self._folder}: the folder has gone ({error.strerror})"
            ) from error
        names = [name for name in file_names if name.endswith(_PARSER.suffix)]
        grown = [self._look_at(name) for name in names if name not in self._others]
        if any(grown):
            self._forget()
        return any(grown)

    def run(self) -> Run:
        """Return the last steps as a run.

        Raises:
            NotFoundError: if there is no log of the run yet.
        """
        parsed = [known.parsed for known in self._logs.values()]
        if not parsed:
            raise NotFoundError(f"{self._folder}: no log of run {self._run_id} is here yet")
        return group(str(self._folder), parsed, ())[0]

    def _look_at(self, name: str) -> bool:
        path = self._folder / name
        try:
            size = path.stat().st_size
            file = SourceFile(name, str(path), size, "", partial(bytes_of, path, size))
            known = self._logs.get(name)
            if known is not None and size <= known.offset:
                return False
            new = None if known is None else known.read_on(file)
            new = new or self._begin(file)
        except (OSError, NotFoundError, UnreadableError):
            # Gone, or its first line is not complete yet: the next update tries again.
            return False
        if new is None:
            self._others.add(name)
            self._logs.pop(name, None)
            return False
        self._logs[name] = new
        return known is None or new.offset > known.offset

    def _begin(self, file: SourceFile) -> ReadLog | None:
        """Read the head and the last rows of a log; None if it is of another run."""
        start = file.read(0, min(_HEAD_BYTES, file.size))
        whole = start[: start.rfind(b"\n") + 1]
        head = head_of(whole)
        last = self._most_steps() * _ROW_BYTES
        if file.size - len(whole) > last:
            # Between the head and the end of a long log, only facts are needed.
            head += facts_in(whole[len(head) :])
            rows = file.read(file.size - last)
            rows = rows[rows.find(b"\n") + 1 :]
            offset = file.size - len(rows)
        else:
            offset, rows = len(head), file.read(len(head))
        rows = rows[: rows.rfind(b"\n") + 1]
        data, end = head + rows, offset + len(rows)
        parsed = _PARSER.parse(file.name, data)
        # Joined logs no longer grow.
        if parsed.run_id != self._run_id or is_joined(data):
            return None
        parsed = replace(parsed, log=replace(parsed.log, size=end))
        return ReadLog.of(file, head, rows, end, parsed, parsed)

    def _most_steps(self) -> int:
        most = min(self._most_rows // max(len(self._logs), 1), _MOST_STEPS)
        return max(most, _FEWEST_STEPS)

    def _forget(self) -> None:
        """Drop steps that are too far back."""
        last = max((_last_step(known.parsed.steps) for known in self._logs.values()), default=-1)
        keep = self._most_steps()
        after = arrow.scalar(last - keep, pa.int64())
        for name, known in self._logs.items():
            parsed = known.parsed
            if parsed.steps.num_rows > keep:
                steps = parsed.steps.filter(pc.greater(parsed.steps["step"], after))
                between = pc.greater(parsed.intervals["step"], after)
                parsed = replace(parsed, steps=steps, intervals=parsed.intervals.filter(between))
                self._logs[name] = replace(known, parsed=parsed, shown=parsed)


def _last_step(table: pa.Table) -> int:
    last = pc.max(table["step"]).as_py()
    return -1 if last is None else int(last)
