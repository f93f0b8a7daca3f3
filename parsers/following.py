"""Follow a run while it is recorded: read new rows only, and keep only the last steps.

The cost of an update depends on what was written since the last one, not on the length of the run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.collector.sources.base import SourceFile, bytes_of
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.run import Run

from .formats.step_log.parser import StepLogParser, is_joined
from .growing import ReadLog, facts_in, head_of
from .runs.grouping import group

#: The most rows of all ranks together to keep; the same for steps of a rank.
MOST_ROWS = 200_000
_MOST_STEPS = 2_000
_FEWEST_STEPS = 60
# Contains the header and the facts of a log's first steps; a row has at most 200 bytes.
_HEAD_BYTES = 256 * 1024
_ROW_BYTES = 200
_PARSER = StepLogParser()


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
