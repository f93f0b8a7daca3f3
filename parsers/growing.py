"""Read the step logs of a place repeatedly: of a log that has grown, read the new rows only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from stallscope.collector.sources.base import SourceFile
from stallscope.errors import UnreadableError

from .base import Parsed
from .following import COMMENT, head_of
from .reader import read_in_order
from .reading import Reading
from .step_log import MAGIC, StepLogParser, torn_lines
from .unpacking import Unpacked, unpacked_whole

# So many old bytes are compared: a log that was started again is read from its start.
_OVERLAP = 4096
_PARSER = StepLogParser()


@dataclass(frozen=True)
class _ReadLog:
    """A log up to its last whole line."""

    #: Of the file when it was listed.
    size: int
    version: str
    #: Lines that describe the rows: header, facts, columns.
    head: bytes
    #: How many of those lines are torn.
    torn: int
    #: Where the first incomplete line starts, and the bytes before it.
    offset: int
    end: bytes
    parsed: Parsed
    #: The same with the incomplete line counted.
    shown: Parsed


class Growing:
    """Reads files as this process does, and holds what it has read of step logs. For one place.

    See ``stallscope.parsers.reader.Reads``.
    """

    def __init__(self) -> None:
        self._logs: dict[str, _ReadLog] = {}

    def read(self, reading: Reading, files: Sequence[SourceFile], *, local: bool) -> None:
        read_in_order(reading, files, partial(self._ahead, reading), local=local)
        there = {file.name for file in files}
        self._logs = {name: known for name, known in self._logs.items() if name in there}

    def records_logs(self, reading: Reading) -> list[Parsed]:
        return reading.records_logs()

    def _ahead(self, reading: Reading, file: SourceFile) -> tuple[Unpacked, Parsed | None]:
        """Return the part of a file that shows its kind and its step log, or else all of it."""
        known = self._logs.pop(file.name, None)
        grown = None if known is None or reading.forced is not None else _read_on(known, file)
        if grown is None:
            data = file.read()
            whole = unpacked_whole(file.where, data)
            parsed = reading.read_ahead(file.name, whole.data)
            # A compressed file cannot be continued from its end, and a user's parser reads whole files.
            plain = whole.data is data and reading.forced is None
            grown = _first_read(parsed, file, data) if plain and parsed is not None else None
            if grown is None:
                return whole, parsed
        self._logs[file.name] = grown
        return Unpacked(grown.head, False), grown.shown


def _first_read(parsed: Parsed, file: SourceFile, data: bytes) -> _ReadLog | None:
    """Return the state of a log that was read as a whole; None if it has no columns yet, or shares
    its file with others.
    """
    if parsed.more or parsed.problems != torn_lines(parsed.log):
        return None
    offset = data.rfind(b"\n") + 1
    head = head_of(data[:offset])
    if not head or head[head.rfind(b"\n", 0, -1) + 1 :].startswith(b"#"):
        return None
    whole = _with_torn(parsed, parsed.log.torn - (offset < len(data)), offset)
    head += b"".join(COMMENT.findall(data, len(head), offset))
    end = data[max(0, offset - _OVERLAP) : offset]
    return _ReadLog(file.size, file.version, head, _torn(file, head), offset, end, whole, parsed)


def _read_on(known: _ReadLog, file: SourceFile) -> _ReadLog | None:
    """Read what a log has gained; None if it must be read from its start."""
    if file.version and (file.size, file.version) == (known.size, known.version):
        return known
    if file.size < known.offset:
        return None
    data = file.read(known.offset - len(known.end))
    if not data.startswith(known.end):
        return None
    new = data[len(known.end) :]
    whole = new[: new.rfind(b"\n") + 1]
    if MAGIC in new:
        return None  # another log has been put after it
    offset = known.offset + len(whole)
    try:
        rows = _PARSER.parse(file.name, known.head + whole)
    except UnreadableError:
        return None  # the sentence is that of the whole log
    parsed = _joined(known, rows, offset)
    if parsed is None or rows.problems != torn_lines(rows.log):
        return None
    shown = _with_torn(parsed, parsed.log.torn + 1, known.offset + len(new))
    facts = b"".join(COMMENT.findall(whole))
    return _ReadLog(
        file.size,
        file.version,
        known.head + facts,
        _torn(file, known.head + facts) if facts else known.torn,
        offset,
        (known.end + whole)[-_OVERLAP:],
        parsed,
        shown if len(new) > len(whole) else parsed,
    )


def _torn(file: SourceFile, head: bytes) -> int:
    return _PARSER.parse(file.name, head).log.torn


def _joined(known: _ReadLog, new: Parsed, size: int) -> Parsed | None:
    """Add new rows to a log; None if new facts change the meaning of the old rows."""
    old, log = known.parsed, new.log
    if (new.run_id, log.rank, log.generation, log.part, log.anchor) != (
        *(old.run_id, old.log.rank, old.log.generation),
        *(old.log.part, old.log.anchor),
    ):
        return None
    # What is torn in the head was counted when it came.
    torn = old.log.torn + log.torn - known.torn
    both = replace(
        new,
        log=replace(log, ended=old.log.ended or log.ended),
        steps=pa.concat_tables([old.steps, new.steps]).combine_chunks(),
        intervals=pa.concat_tables([old.intervals, new.intervals]).combine_chunks(),
    )
    return _with_torn(both, torn, size)


def _with_torn(parsed: Parsed, torn: int, size: int) -> Parsed:
    log = replace(parsed.log, torn=torn, size=size)
    return replace(parsed, log=log, problems=torn_lines(log))
