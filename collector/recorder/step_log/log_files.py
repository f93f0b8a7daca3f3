"""Write one rank's log to files, also where files cannot be appended to, and limit how often."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from stallscope import __version__

from ..guards import Cost
from ..job.world import World, job_start_ns, process_start_ns
from .line_format import SUFFIX, RowFormatter, facts_line, file_name, header
from .sinks import FileSink, LoggingSink

logger = logging.getLogger("stallscope")
# A process that records more parts than this into one folder loops without training.
_MOST_PARTS = 100_000
# Errors of file systems that accept whole files only.
_CANNOT_APPEND = (
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EPERM,
)

#: A log that is copied as a whole continues in another file above this size, so that the copied bytes
#: grow with the run and not with its square.
COPIED_PART_BYTES = 1 << 20
#: Such a log is copied this often and at the end of an epoch, though not after every short epoch.
COPY_SECONDS = 300.0
SHORTEST_COPY_SECONDS = 60.0
#: The first upload to a server comes after this time; each pause is then twice the one before,
FIRST_UPLOAD_SECONDS = 5.0
#: up to this time or this share of the run so far: uploads grow with the logarithm of a run's length.
UPLOAD_SECONDS = 600.0
UPLOAD_SHARE = 1 / 16
#: The first upload finds the run, lists its files and sends; every later one only sends.
FIRST_UPLOAD_REQUESTS = 3
#: The limit for all ranks together on requests to a server or a store during training. An MLflow server
#: with one worker handles 140 uploads of some kilobytes per second on two busy cores.
REQUESTS_PER_SECOND = 50.0
#: The last upload waits no longer than this for its turn: the process waits for it, and a container that
#: ends would lose what was not sent.
LONGEST_LAST_TURN_SECONDS = 20.0
# Multiples of the golden ratio spread evenly over an interval, whatever their number (Knuth, The Art of
# Computer Programming, volume 3, 6.4).
_GOLDEN = 0.6180339887498949


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

    def copy_if_due(self, flushed: float) -> bool:
        """Copy the spooled log to its place if it is time; return whether that was done.

        A failed copy is repeated at the next time.

        Args:
            flushed: when the last flush began. An epoch that ended after it is copied after the next
                flush, which writes its last rows.
        """
        part = self._part
        if part is None or part.spool is None or not self.copies.is_due(flushed):
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


# -- Spool logs on the local disk for mounts that cannot append, such as object stores ------------
#
# The log is copied to its place as a whole, at the ends of epochs, every few minutes, and at the
# end. A large log continues in another file, so that copies stay small. If a process is killed, the
# local file still has what was not copied.


def cannot_append(error: OSError) -> bool:
    """Return whether the error shows a file system that accepts whole files only."""
    return error.errno in _CANNOT_APPEND


def needs_spooling(folder: Path) -> bool:
    """Return whether logs in a folder are known to need spooling, without trying.

    Databricks' mounts accept appended data and show it, or lose it, when the file is closed.
    ``STALLSCOPE_SPOOL`` overrides the answer: 1 spools, 0 does not.
    """
    setting = os.environ.get("STALLSCOPE_SPOOL")
    if setting:
        return setting != "0"
    text = str(folder) + "/"
    on_databricks = bool(os.environ.get("DATABRICKS_RUNTIME_VERSION"))
    return text.startswith("/dbfs/") or (on_databricks and text.startswith("/Volumes/"))


class SpooledSink:
    """A log on the local disk that is copied to its place."""

    def __init__(self, path: Path, begin: bytes) -> None:
        """Start the log with these bytes.

        Raises:
            OSError: if the local disk does not accept it.
        """
        self._path = path
        self._local = Path(tempfile.mkdtemp(prefix="stallscope-")) / path.name
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
        self._descriptor = os.open(str(self._local), flags, 0o644)
        self._written = self._copied = 0
        self.write(begin)

    def __str__(self) -> str:
        return str(self._local)

    @property
    def is_full(self) -> bool:
        """Return whether the log should continue in another file."""
        return self._written >= COPIED_PART_BYTES

    def write(self, data: bytes) -> None:
        self._written += len(data)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def publish(self) -> None:
        """Copy the whole log to its place, if anything is new.

        Raises:
            OSError: if the place does not accept it.
        """
        written = self._written
        if written > self._copied:
            shutil.copyfile(str(self._local), str(self._path))
            self._copied = written

    def close(self) -> None:
        """Copy the whole log for the last time and delete the local file.

        Raises:
            OSError: if the place does not accept it; the local file stays.
        """
        os.close(self._descriptor)
        try:
            self.publish()
        except OSError as error:
            raise OSError("%s; the log is kept in %s" % (error, self._local)) from error
        shutil.rmtree(str(self._local.parent), ignore_errors=True)


class CopySchedule:
    """When to copy a spooled log: all ranks end their epochs together, so each waits for its turn."""

    def __init__(self, rank: int, size: int, now: float) -> None:
        self._turn = turn_seconds(rank, size)
        self._shortest = max(SHORTEST_COPY_SECONDS, shortest_pause_seconds(size))
        self._longest = max(COPY_SECONDS, shortest_pause_seconds(size))
        self._earliest = now
        self._due = now + self._longest + self._turn

    def epoch_ended(self, now: float) -> None:
        """Schedule a copy soon."""
        self._due = min(self._due, max(now + self._turn, self._earliest))

    def is_due(self, now: float) -> bool:
        """Return whether to copy the log now; true once per copy."""
        if now < self._due:
            return False
        self._earliest, self._due = now + self._shortest, now + self._longest
        return True


# -- Limit the load on shared services: a disk, an object store, MLflow's server ------------------
#
# Ranks start together, end their epochs together and finish together. These limits keep the
# load small for thousands of ranks. docs/scale.md shows the arithmetic.


def turn_seconds(rank: int, size: int, requests: int = 1) -> float:
    """Return how long a rank waits for its turn where all ranks would send requests at once.

    Every rank computes its own wait, rank 0 goes first, and all ranks together keep to
    ``REQUESTS_PER_SECOND``.
    """
    return rank * _GOLDEN % 1.0 * shortest_pause_seconds(size, requests)


def shortest_pause_seconds(size: int, requests: int = 1) -> float:
    """Return the shortest pause between two requests of a rank that keeps all ranks to the limit."""
    return size * requests / REQUESTS_PER_SECOND


def next_pause_seconds(pause: float, age: float, size: int) -> float:
    """Return the pause before a rank's next upload, given its last pause and the run's age."""
    longest = max(UPLOAD_SECONDS, UPLOAD_SHARE * age)
    # The second uploads start after the first upload of every rank.
    return max(min(2 * pause, longest), shortest_pause_seconds(size, FIRST_UPLOAD_REQUESTS))
