"""Follow a run while it is recorded: read new rows only, and keep only the last steps.

The cost of an update depends on what was written since the last one, not on the length of the run.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stallscope.errors import NotFoundError, UnreadableError
from stallscope.run import Run

from .base import Parsed
from .grouping import group
from .step_log import StepLogParser, is_joined

#: The most rows of all ranks together, and steps, to keep: a user watches the present.
MOST_ROWS = 200_000
_MOST_STEPS = 2_000
_FEWEST_STEPS = 60
# The header and the facts of a log's first steps are in here; a row has at most 200 bytes.
_HEAD_BYTES = 256 * 1024
_ROW_BYTES = 200
#: Lines of a step log that describe other lines.
COMMENT = re.compile(rb"^#.*\n", re.MULTILINE)
_PARSER = StepLogParser()


@dataclass
class _Followed:
    """One growing log."""

    path: Path
    #: Lines that describe the rows: header, facts, columns.
    head: bytes
    #: Bytes that were read, to the end of a line.
    offset: int
    parsed: Parsed


class Follower:
    """Follows the logs of one run in a folder on this machine's disks. For one thread at a time.

    Args:
        folder: where the logs are.
        run_id: of the run; other runs' logs in the folder are left alone.
        most_rows: rows of all ranks together that are kept.
    """

    def __init__(self, folder: Path, run_id: str, most_rows: int = MOST_ROWS) -> None:
        self._folder = folder
        self._run_id = run_id
        self._most_rows = most_rows
        self._logs: dict[str, _Followed] = {}
        self._others: set[str] = set()

    def look(self) -> bool:
        """Read what is new; whether there was anything.

        Raises:
            NotFoundError: if the folder has gone.
        """
        try:
            with os.scandir(self._folder) as entries:
                found = sorted(entry.name for entry in entries if entry.is_file())
        except OSError as error:
            raise NotFoundError(
                f"{self._folder}: the folder has gone ({error.strerror})"
            ) from error
        names = [name for name in found if name.endswith(_PARSER.suffix)]
        grown = [self._look_at(name) for name in names if name not in self._others]
        if any(grown):
            self._forget()
        return any(grown)

    def run(self) -> Run:
        """Return the last steps as a run.

        Raises:
            NotFoundError: if there is no log of the run yet.
        """
        parsed = [followed.parsed for followed in self._logs.values()]
        if not parsed:
            raise NotFoundError(f"{self._folder}: no log of run {self._run_id} is here yet")
        return group(str(self._folder), parsed, ())[0]

    def _look_at(self, name: str) -> bool:
        try:
            followed = self._logs.get(name)
            return self._begin(name) if followed is None else self._go_on(followed)
        except (OSError, UnreadableError):
            # Gone, or its first line is not complete yet: the next update tries again.
            return False

    def _begin(self, name: str) -> bool:
        path = self._folder / name
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(_HEAD_BYTES)
            whole = start[: start.rfind(b"\n") + 1]
            head = head_of(whole)
            last = self._window_bytes()
            if size - len(whole) > last:
                # A long log: of the rows between its head and its end only facts are of use.
                head += b"".join(COMMENT.findall(whole[len(head) :]))
                file.seek(size - last)
                file.readline()
                offset, rows = file.tell(), file.read()
            else:
                offset, rows = len(head), start[len(head) :] + file.read()
        rows = rows[: rows.rfind(b"\n") + 1]
        data = head + rows
        parsed = _PARSER.parse(name, data)
        # Logs that were joined into one are read when all of them are, and grow no more.
        if parsed.run_id != self._run_id or is_joined(data):
            self._others.add(name)
            return False
        head += b"".join(COMMENT.findall(rows))
        end = offset + len(rows)
        parsed = replace(parsed, log=replace(parsed.log, size=end))
        self._logs[name] = _Followed(path, head, end, parsed)
        return True

    def _go_on(self, followed: _Followed) -> bool:
        if followed.path.stat().st_size <= followed.offset:
            return False
        with followed.path.open("rb") as file:
            file.seek(followed.offset)
            rows = file.read()
        rows = rows[: rows.rfind(b"\n") + 1]
        if not rows:
            return False
        new = _PARSER.parse(followed.path.name, followed.head + rows)
        followed.head += b"".join(COMMENT.findall(rows))
        followed.offset += len(rows)
        followed.parsed = _joined(followed.parsed, new, followed.offset)
        return True

    def _window_bytes(self) -> int:
        """Return how many bytes of one log to read, given how many logs are known."""
        return self._most_steps() * _ROW_BYTES

    def _most_steps(self) -> int:
        most = min(self._most_rows // max(len(self._logs), 1), _MOST_STEPS)
        return max(most, _FEWEST_STEPS)

    def _forget(self) -> None:
        """Drop steps that are too far back."""
        tables = [followed.parsed.steps for followed in self._logs.values()]
        last = max((_last_step(table) for table in tables), default=-1)
        keep = self._most_steps()
        for followed in self._logs.values():
            parsed = followed.parsed
            if parsed.steps.num_rows > keep:
                near = pc.greater(parsed.steps["step"], last - keep)
                between = pc.greater(parsed.intervals["step"], last - keep)
                followed.parsed = replace(
                    parsed,
                    steps=parsed.steps.filter(near),
                    intervals=parsed.intervals.filter(between),
                )


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


def _joined(old: Parsed, new: Parsed, size: int) -> Parsed:
    log = replace(
        new.log,
        size=size,
        torn=old.log.torn + new.log.torn,
        ended=old.log.ended or new.log.ended,
    )
    return replace(
        new,
        log=log,
        steps=pa.concat_tables([old.steps, new.steps]).combine_chunks(),
        intervals=pa.concat_tables([old.intervals, new.intervals]).combine_chunks(),
        problems=(*old.problems, *new.problems)[-10:],
    )


def _last_step(table: pa.Table) -> int:
    last = pc.max(table["step"]).as_py()
    return -1 if last is None else int(last)
