"""Read a timeline block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from stallscope.errors import NotFoundError, UnreadableError

from ...base import CompanionFormat
from ...files.unpacking import Readable, readable
from .timeline_events import EVENT, BlockRows, Events, Opened, Texts, Ticks, events, matched

# Larger blocks are no faster, and the arrays of one block stay below 30 MB.
_BLOCK_BYTES = 2 << 20
# No event is longer: twice as many bytes without one do not belong to a timeline.
_LONGEST_EVENT = 1 << 16
HEAD_BYTES = 4096
_HEAD = re.compile(rb'\s*\[\s*\{"(name": "process_name", "ph": "M"|ph": "[BEXi]")')
_META = b'{"name": "process_name", "ph": "M", "pid": '
# A name may contain quotes and braces: it ends before the text that must follow it.
_META_REST = re.compile(
    rb'(\d{1,7}), "args": \{'
    rb'(?:"start_time_since_epoch_in_micros":(\d{1,18})|"name": "(.*?)")'
    rb'\}\},\r?\n\{"name": "process_sort_index"',
    re.DOTALL,
)
_LATEST_US = 1 << 62
# Between the bracket that opens an array and its first line.
_BRACKET_BYTES = 4
_NONE_OPEN = Opened(*np.zeros((3, 0), np.int64))


def is_timeline(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a Horovod Timeline."""
    return _HEAD.match(head) is not None


class HorovodTimelineFormat(CompanionFormat):
    """Horovod Timelines among other logs, which are too large to read there."""

    name: ClassVar[str] = "horovod-timeline"
    title: ClassVar[str] = "a Horovod Timeline"
    note: ClassVar[str | None] = "stallscope tune reads it"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return is_timeline(head)


@dataclass
class _Array:
    """One of the arrays in a file: a job writes one at each start."""

    #: The file's numbers of tensors by the array's own numbers.
    numbers: dict[int, int] = field(default_factory=dict)
    start_us: int | None = None


class TimelineReader:
    """Reads a timeline block by block, in memory that does not grow with the file.

    ``name`` is the file's name in messages. The attributes are complete after all blocks. If a job was
    restarted into the same file, its times continue those from the first start, and its tensors are
    those of the same names.
    """

    def __init__(self, name: str, file: Readable, block_bytes: int = _BLOCK_BYTES) -> None:
        self._name = name
        self._file = file
        self._block_bytes = block_bytes
        self._texts = Texts()
        self._declared_in = self._matched_in = _Array()
        self._at_the_top = True
        self._open = _NONE_OPEN
        self._latest = 0
        # The offset of the current array's times.
        self._shift = 0
        self._given_up = 0
        #: Names of tensors by number.
        self.tensors: dict[int, str] = {}
        #: The wall time at time 0 of the timeline, microseconds since 1970; None before Horovod 0.20.1.
        self.start_us: int | None = None
        #: How often the job was restarted into the file.
        self.restarts = 0
        #: The number of unreadable events, and of ends without a start or before it.
        self.unreadable = 0
        self.unmatched = 0

    @property
    def activity_names(self) -> tuple[str, ...]:
        """Return names of activities, by the numbers that activities have."""
        return tuple(text.decode("utf-8", "replace") for text in self._texts.known)

    @property
    def unfinished(self) -> int:
        """Count activities that have not ended so far."""
        return len(self._open) + self._given_up

    def block_rows(self) -> Iterator[BlockRows]:
        """Yield the blocks of the file in order, at least one.

        Raises:
            UnreadableError: if the file does not begin as a Horovod Timeline does.
        """
        # In one thread: numpy's functions on arrays of this size hand the GIL over so often that threads
        # take twice the CPU time, and no less of the user's.
        for array, block in self._blocks():
            yield self._rows_of(array, *events(block, self._texts))

    def _blocks(self) -> Iterator[tuple[_Array, bytes]]:
        """Yield whole events of one array each."""
        block = self._file.read(max(self._block_bytes, HEAD_BYTES))
        if not is_timeline(block[:HEAD_BYTES]):
            raise UnreadableError(
                f"{self._name}: not a Horovod Timeline: it does not start with an array of events"
            )
        rest, more = b"", block
        while more:
            # The last event may continue in the next block.
            last = more.rfind(EVENT)
            if last >= 0:
                block, rest = b"".join((rest, memoryview(more)[:last])), more[last:]
            else:
                block, rest = b"", rest + more
                if len(rest) > 2 * _LONGEST_EVENT:
                    block, rest = rest[:-_LONGEST_EVENT], rest[-_LONGEST_EVENT:]
                    self.unreadable += 1
            if block:
                yield from self._of_arrays(block)
            more = self._file.read(self._block_bytes)
        if rest:
            yield from self._of_arrays(rest)

    def _of_arrays(self, block: bytes) -> Iterator[tuple[_Array, bytes]]:
        """Cut the block where a further array starts."""
        first = 0
        places = [*_places(block, _META), len(block)]
        for at, until in pairwise(places):
            # Only up to the next tensor: a name without an end would be searched to the block's end.
            declared = _META_REST.match(block, at + len(_META), until)
            if self._begins_again(block, at, declared):
                if at > first:
                    yield self._declared_in, block[first:at]
                first, self._declared_in = at, _Array()
                self.restarts += 1
            if declared is not None:
                self._declare(declared)
        yield self._declared_in, block[first:]
        self._at_the_top = False

    def _begins_again(self, block: bytes, at: int, declared: re.Match[bytes] | None) -> bool:
        """Whether a new array begins there. Within an array, each tensor is declared once."""
        if declared is not None and int(declared[1]) in self._declared_in.numbers:
            return True
        after_bracket = block[max(at - _BRACKET_BYTES, 0) : at].rstrip().endswith(b"[")
        return after_bracket and not (self._at_the_top and block[:at].strip() == b"[")

    def _declare(self, declared: re.Match[bytes]) -> None:
        number, array = int(declared[1]), self._declared_in
        array.numbers[number] = number
        if declared[2] is not None:
            array.start_us = int(declared[2])
            if not self.restarts:
                self.start_us = array.start_us
            return
        name = declared[3].decode("utf-8", "replace")
        if self.restarts:
            known = {name: number for number, name in self.tensors.items()}
            array.numbers[number] = known.get(name, max(self.tensors, default=0) + 1)
        self.tensors[array.numbers[number]] = name

    def _rows_of(self, array: _Array, block_events: Events, unreadable: int) -> BlockRows:
        restarted = array is not self._matched_in
        if restarted:
            self._start_again(array)
        file_events = self._in_common(block_events)
        self.unreadable += unreadable
        pairs = matched(self._open, file_events)
        self._open = pairs.opened
        self.unmatched += pairs.unmatched
        self._given_up += pairs.given_up
        latest = int(file_events.at.max(initial=self._latest))
        first = int(file_events.at.min(initial=latest))
        self._latest = latest
        return BlockRows(
            activities=pairs.activities,
            ticks=self._ticks(file_events),
            cycles=file_events.at[file_events.kind == ord("i")],
            first=first,
            settled=int(self._open.at.min(initial=latest)),
            restarted=restarted,
        )

    def _start_again(self, array: _Array) -> None:
        self._matched_in = array
        self._given_up += len(self._open)
        self._open = _NONE_OPEN
        # Without start times of both, it continues at the last event of the array before.
        self._shift = self._latest
        if array.start_us is not None and self.start_us is not None:
            self._shift = max(array.start_us - self.start_us, 0)

    def _in_common(self, block_events: Events) -> Events:
        """Convert the times and tensors of events to those of the whole file."""
        numbers = self._matched_in.numbers
        if self._shift:
            block_events = replace(
                block_events, at=np.minimum(block_events.at + self._shift, _LATEST_US)
            )
        if all(local == number for local, number in numbers.items()):
            return block_events
        tensors, index = np.unique(block_events.tensor, return_inverse=True)
        common = np.array([numbers.get(tensor, tensor) for tensor in tensors.tolist()], np.int64)
        return replace(block_events, tensor=common[index])

    def _ticks(self, file_events: Events) -> Ticks:
        here = np.flatnonzero(file_events.kind == ord("X"))
        if not len(here):
            return Ticks(here, here, here)
        known = self._texts.known
        numbers = [int(text) if text.isdigit() and len(text) < 10 else -1 for text in known]
        rank = np.array(numbers, np.int64)[file_events.text[here]]
        here, rank = here[rank >= 0], rank[rank >= 0]
        return Ticks(file_events.tensor[here], rank, file_events.at[here])


def _places(block: bytes, text: bytes) -> Iterator[int]:
    """Find all places of a text."""
    at = block.find(text)
    while at >= 0:
        yield at
        at = block.find(text, at + len(text))


@contextmanager
def open_timeline(path: str | Path) -> Iterator[TimelineReader]:
    """Open a timeline, which may be compressed.

    Raises:
        NotFoundError: if there is no such file.
        UnreadableError: if it cannot be read, or unpacked.
    """
    try:
        with Path(path).open("rb") as file:
            yield timeline_reader(str(path), file)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None


def timeline_reader(name: str, file: BinaryIO) -> TimelineReader:
    """Return a reader of a timeline in an open file, which may be compressed.

    Raises:
        UnreadableError: if it can be unpacked only with an extra that is not installed.
    """
    return TimelineReader(name, readable(name, file))
