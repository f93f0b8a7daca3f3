"""Write one rank's log to files and records."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from stallscope import __version__

from ..cost import Cost
from ..job.launch import job_start_ns, process_start_ns
from ..job.world import World
from .format import SUFFIX, RowFormatter, facts_line, file_name, header
from .sinks import FileSink, LoggingSink
from .spool import CopySchedule, SpooledSink, cannot_append, needs_spooling

logger = logging.getLogger("stallscope")

# A process that records more parts than this into one folder loops without training.
_MOST_PARTS = 100_000


class _Part(NamedTuple):
    """A part of the log that is open; its path is None where the log has no files."""

    number: int
    path: Optional[Path]
    sinks: List[Union[FileSink, LoggingSink, SpooledSink]]
    spool: Optional[SpooledSink]
    formatter: RowFormatter


class LogFiles:
    """Writes a log to its sinks, and continues it in further files.

    Args:
        log_dir: the folder; only files need it.
        world: the rank that records.
        generation: the generation of the rank's run.
        sink: one of ``SINKS``.
        cost: counts the writes.
        fail: called with the reason if a part cannot be closed.
    """

    def __init__(
        self,
        log_dir: Path,
        world: World,
        generation: int,
        sink: str,
        cost: Cost,
        fail: Callable[[str], None],
    ) -> None:
        self._log_dir = log_dir
        self._world = world
        self._generation = generation
        self._sink = sink
        self._cost = cost
        self._fail = fail
        self._job_start_ns = job_start_ns()
        self._part: Optional[_Part] = None
        #: Bytes in the current part.
        self.size = 0
        #: When the spooled log is copied to its place.
        self.copies = CopySchedule(world.rank, world.size, time.monotonic())
        self._copy_failed = False

    @property
    def is_open(self) -> bool:
        return self._part is not None and bool(self._part.sinks)

    @property
    def path(self) -> Optional[Path]:
        return None if self._part is None else self._part.path

    @property
    def formatter(self) -> RowFormatter:
        """The formatter of rows for the current part."""
        assert self._part is not None
        return self._part.formatter

    @property
    def spooled_in(self) -> Optional[str]:
        """The local file of a spooled log; None where the log needs no spooling."""
        return None if self._part is None or self._part.spool is None else str(self._part.spool)

    @property
    def spool_is_full(self) -> bool:
        spool = None if self._part is None else self._part.spool
        return spool is not None and spool.is_full

    def start_part(self, facts: Dict[str, Any], clocks: Tuple[int, int]) -> None:
        """Open the first or the next part, and then close the part before it.

        Raises:
            OSError: if that fails; the part before it stays open.
        """
        old, number, path, descriptor = self._part, 0, None, None
        if self._sink != "logging":
            descriptor, path, number = self._new_file()
        elif old is not None:
            number = old.number + 1
        if self._job_start_ns is not None:
            facts = {"job_start_us": (self._job_start_ns - clocks[0]) // 1000, **facts}
        first, second = _first_lines({"part": number, **facts}, clocks)
        part = _Part(number, path, [], None, RowFormatter(*clocks))
        if descriptor is not None and path is not None:
            _write_header(descriptor, first)
            part = self._with_file(part, path, first, second)
        if self._sink != "file":
            name = file_name(self._world.rank, self._generation, number)
            records = LoggingSink(name[: -len(SUFFIX)])
            records.write(first + second)
            part.sinks.append(records)
        self._part, self.size = part, len(first + second)
        self._cost.count_write(self.size)
        if old is not None:
            self._close(old)

    def write(self, data: bytes) -> None:
        assert self._part is not None
        for sink in self._part.sinks:
            sink.write(data)
        self.size += len(data)
        self._cost.count_write(len(data))

    def copy_if_due(self) -> bool:
        """Copy the spooled log to its place if it is time; return whether that was done.

        A failed copy is repeated at the next time.
        """
        part = self._part
        if part is None or part.spool is None or not self.copies.is_due(time.monotonic()):
            return False
        try:
            part.spool.publish()
        except OSError as error:
            if not self._copy_failed:
                logger.warning(
                    "stallscope: the log cannot be copied to %s yet: %s; until then it is in %s",
                    part.path,
                    error,
                    part.spool,
                )
            self._copy_failed = True
            return False
        self._copy_failed = False
        return True

    def close(self) -> None:
        """Close the current part."""
        if self._part is not None:
            self._close(self._part)

    def _close(self, part: _Part) -> None:
        while part.sinks:
            try:
                part.sinks.pop(0).close()
            except OSError as error:  # network file systems report failed writes only here
                self._fail("cannot close %s: %s" % (part.path, error))

    def _with_file(self, part: _Part, path: Path, first: bytes, second: bytes) -> _Part:
        """Open the sink for everything after the header; spool if the file cannot be appended to."""
        if not needs_spooling(self._log_dir):
            file = None
            try:
                file = FileSink(os.open(str(path), os.O_WRONLY | os.O_APPEND))
                file.write(second)
                return part._replace(sinks=[file])
            except OSError as error:
                if file is not None:
                    file.close()
                if not cannot_append(error):
                    raise
        spool = SpooledSink(path, first + second)
        return part._replace(sinks=[spool], spool=spool)

    def _new_file(self) -> Tuple[int, Path, int]:
        """Create the next free file; return its descriptor, its path and the number of the part."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        for number in range(_MOST_PARTS):
            path = self._log_dir / file_name(self._world.rank, self._generation, number)
            try:
                return os.open(str(path), flags, 0o644), path, number
            except FileExistsError:
                continue
        raise OSError("%d logs of this rank already exist" % _MOST_PARTS)


def _first_lines(facts: Dict[str, Any], clocks: Tuple[int, int]) -> Tuple[bytes, bytes]:
    """Return the header of a part, and the line after it."""
    monotonic, clock = clocks
    anchored = {
        "anchor": {"monotonic_ns": monotonic, "wall_ns": monotonic + clock},
        "process_start_us": (process_start_ns() - monotonic) // 1000,
        **facts,
    }
    return header(anchored).encode(), facts_line({"recorder": __version__}).encode()


def _write_header(descriptor: int, first: bytes) -> None:
    """Write the header and close the file: some mounts show content only then."""
    file = FileSink(descriptor)
    try:
        file.write(first)
    finally:
        file.close()
