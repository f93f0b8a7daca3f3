"""Step logs of a place that is read again and again: of one that has grown only what is new is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from stallscope.collector.sources.base import SourceFile
from stallscope.errors import UnreadableError

from .base import Parsed
from .following import COMMENT, head_of
from .packed import Unpacked, unpacked_whole
from .reader import read_in_turn
from .reading import Reading
from .step_log import MAGIC, StepLogParser, torn_lines

# So much before what is new is compared: a log that was begun anew is read from its beginning.
_OVERLAP = 4096
_PARSER = StepLogParser()


@dataclass(frozen=True)
class _Held:
    """A log as far as its lines were whole."""

    #: Of the file when it was listed.
    size: int
    version: str
    #: Lines that describe the rows: header, facts, columns.
    head: bytes
    #: How many of those lines are torn.
    torn: int
    #: Where the first line begins that was not whole, and what is before it.
    offset: int
    end: bytes
    parsed: Parsed
    #: The same with what there was of a line that was not whole.
    shown: Parsed


class Growing:
    """Reads files as this process does, and holds what it has read of step logs. For one place.

    See ``stallscope.parsers.reader.Reads``.
    """

    def __init__(self) -> None:
        self._logs: dict[str, _Held] = {}

    def read(self, reading: Reading, files: Sequence[SourceFile], *, local: bool) -> None:
        read_in_turn(reading, files, partial(self._ahead, reading), local=local)
        there = {file.name for file in files}
        self._logs = {name: held for name, held in self._logs.items() if name in there}

    def records_logs(self, reading: Reading) -> list[Parsed]:
        return reading.records_logs()

    def _ahead(self, reading: Reading, file: SourceFile) -> tuple[Unpacked, Parsed | None]:
        """Return the part of a file that shows its kind and its step log, or else all of it."""
        held = self._logs.pop(file.name, None)
        grown = None if held is None or reading.forced is not None else _grown(held, file)
        if grown is None:
            data = file.read()
            whole = unpacked_whole(file.where, data)
            parsed = reading.ahead(file.name, whole.data)
            # What is packed cannot be read from where it has ended, and others' parsers read as they do.
            plain = whole.data is data and reading.forced is None
            grown = _begun(parsed, file, data) if plain and parsed is not None else None
            if grown is None:
                return whole, parsed
        self._logs[file.name] = grown
        return Unpacked(grown.head, False), grown.shown


def _begun(parsed: Parsed, file: SourceFile, data: bytes) -> _Held | None:
    """What is to be held of a log that was read as a whole; None where it has no columns yet, and where
    it is one of several in the file.
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
    return _Held(file.size, file.version, head, _torn(file, head), offset, end, whole, parsed)


def _grown(held: _Held, file: SourceFile) -> _Held | None:
    """What has become of a log; None where that takes reading it from its beginning."""
    if file.version and (file.size, file.version) == (held.size, held.version):
        return held
    if file.size < held.offset:
        return None
    data = file.read(held.offset - len(held.end))
    if not data.startswith(held.end):
        return None
    new = data[len(held.end) :]
    whole = new[: new.rfind(b"\n") + 1]
    if MAGIC in new:
        return None  # another log has been put after it
    offset = held.offset + len(whole)
    try:
        rows = _PARSER.parse(file.name, held.head + whole)
    except UnreadableError:
        return None  # the sentence is that of the whole log
    parsed = _joined(held, rows, offset)
    if parsed is None or rows.problems != torn_lines(rows.log):
        return None
    shown = _with_torn(parsed, parsed.log.torn + 1, held.offset + len(new))
    facts = b"".join(COMMENT.findall(whole))
    return _Held(
        file.size,
        file.version,
        held.head + facts,
        _torn(file, held.head + facts) if facts else held.torn,
        offset,
        (held.end + whole)[-_OVERLAP:],
        parsed,
        shown if len(new) > len(whole) else parsed,
    )


def _torn(file: SourceFile, head: bytes) -> int:
    return _PARSER.parse(file.name, head).log.torn


def _joined(held: _Held, new: Parsed, size: int) -> Parsed | None:
    """A log with its new rows; None where facts have come that change what the old ones mean."""
    old, log = held.parsed, new.log
    if (new.run_id, log.rank, log.generation, log.part, log.anchor) != (
        *(old.run_id, old.log.rank, old.log.generation),
        *(old.log.part, old.log.anchor),
    ):
        return None
    # What is torn in the head was counted when it came.
    torn = old.log.torn + log.torn - held.torn
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
