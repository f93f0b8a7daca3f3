"""A recording session: from the start of training to its end, rows on their way to one file.

The training thread only appends to a list. A background thread turns rows into lines and writes
whole lines, at least every ``flush_seconds``, so that after SIGKILL everything up to the last flush
can be read. Whatever fails here ends the recording with one warning; training goes on.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple, Union

from stallscope import __version__

from . import input_file
from .clock import read_clocks
from .cost import Cost
from .format import (
    END,
    EPOCH,
    SUFFIX,
    IntervalRow,
    RowFormatter,
    SkippedRow,
    StepRow,
    facts_line,
    file_name,
    header,
)
from .guards import gives_way_to_others, let_others_run
from .identity import RunIdentity, World, join_run, launch_name, process_start_ns
from .sampling import Sampler, Sampling
from .sinks import FileSink, LoggingSink
from .spool import Copies, SpooledSink, cannot_append, is_to_be_spooled
from .upload import ended, watch

logger = logging.getLogger("stallscope")

Sink = Union[FileSink, LoggingSink, SpooledSink]

# A process that records more parts than this into one folder is looping, not training.
_MOST_PARTS = 100_000

# A file system that takes longer than this to take the last lines must not hold the end of training.
_PATIENCE_SECONDS = 5.0


class _Past(NamedTuple):
    """What the last session of this process in a log folder left: its run goes on."""

    identity: RunIdentity
    world: World
    next_step: int
    #: Steps that the framework had counted when the session closed; None if unknown.
    counted: Optional[int]


_past: Dict[str, _Past] = {}


class Session:
    """Rows and facts of one rank, written to one step log.

    ``counted`` is how many steps the framework has counted so far; the first step of the session
    gets that number, unless an earlier session in the folder knows better. ``before_flush`` is
    called before every flush, from the flushing thread, and once more at the end. ``mlflow_run_id`` is
    the MLflow run that the log is uploaded to while it grows. ``sink`` is where the log goes; a folder
    is needed for a file only. ``sampling`` says which steps are recorded in full, None all of them. A
    log that has reached ``max_file_bytes`` goes on in another file.
    """

    def __init__(
        self,
        log_dir: Path,
        world: World,
        facts: Dict[str, Any],
        counted: int,
        flush_seconds: float,
        before_flush: Optional[Callable[[], None]] = None,
        mlflow_run_id: Optional[str] = None,
        sink: str = "file",
        sampling: Optional[Sampling] = None,
        max_file_bytes: Optional[int] = None,
    ) -> None:
        self.log_dir = log_dir
        self.path: Optional[Path] = None
        self.next_step = counted
        self._world = world
        self._flush_seconds = flush_seconds
        self._before_flush = before_flush
        self._mlflow_run_id = mlflow_run_id
        self._sink = sink
        self._sampler = None if sampling is None else Sampler(sampling)
        self._max_file_bytes = max_file_bytes
        #: All facts up to now: a log that goes on in another file begins with them.
        self._facts = dict(facts)
        if sampling is not None:
            self._facts["sampling"] = sampling.fact()
        self._facts_lock = threading.Lock()
        # Of the file that the log is in now: its part, its bytes, the last step that is in it.
        self._part = self._written = 0
        self._last_step: Optional[int] = None
        self._sinks: List[Sink] = []
        #: Whether what comes is written: looked at in every step, so it is no property.
        self.recording = False
        self._spool: Optional[SpooledSink] = None
        # When what was spooled is brought to its place.
        self._copies = Copies(world.rank, world.size, time.monotonic())
        self._copy_failed = self._further_file_refused = False
        # A deque: the training thread appends while the other one takes, without a lock.
        self._rows: Deque[Union[StepRow, IntervalRow, str]] = deque()
        self._write_lock = threading.Lock()
        self._fail_lock = threading.Lock()
        self._stop = threading.Event()
        self._failed = False
        self._closed = False
        #: What recording has cost so far.
        self.cost = Cost()
        # A forked child, such as a loader's worker, has a copy of all this and must leave it alone.
        self._pid = os.getpid()
        monotonic, clock = read_clocks()
        self._formatter = RowFormatter(monotonic, clock)
        try:
            self._open(monotonic, clock)
        except Exception as error:
            self.fail("cannot write to %s: %s" % (log_dir, error))
            self._release()
            return
        self.recording = True
        if self.path is not None:
            input_file.recorded_in(log_dir, _past[str(log_dir)].identity.run_id)
            if mlflow_run_id:
                watch(self.path, mlflow_run_id)
        self._thread = threading.Thread(
            target=self._flush_regularly, name="stallscope-flush", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        """Whether the log is closed, or about to be: what is to be in it must come now."""
        return self._closed

    def step(self, row: StepRow) -> None:
        self.next_step = row.step + 1
        self._rows.append(row)

    def late_step(self, row: StepRow) -> None:
        """A step that has had its number for a while: ``next_step`` is beyond it."""
        self._rows.append(row)

    def interval(
        self, kind: str, epoch: Optional[int], begin: int, end: int, clock: Optional[int] = None
    ) -> None:
        if clock is None:
            clock = read_clocks()[1]
        self._rows.append(IntervalRow(kind, self.next_step, epoch, begin, end, clock))
        if kind == EPOCH:
            self._copies.epoch_ended(time.monotonic())

    def facts(self, facts: Dict[str, Any]) -> None:
        """Facts that are only known after the start; later ones win over earlier ones."""
        with self._facts_lock:
            self._facts = {**self._facts, **facts}
        self._rows.append(facts_line(facts))

    def renumber(self, first_step: int) -> None:
        """Before the first step: it has this number, and not the one that was counted."""
        self.next_step = first_step
        self.facts({"first_step": first_step})

    def flush(self) -> None:
        """Write everything that was recorded so far, as whole lines in one write."""
        with self._write_lock:
            self._flush_locked()

    def close(self, counted: Optional[int] = None) -> None:
        """Write the end row and close the file; calling it again does nothing.

        ``counted`` is how many steps the framework has counted by now, where the caller knows.
        """
        if self._closed or not self._sinks or os.getpid() != self._pid:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=_PATIENCE_SECONDS)
        self._take_what_is_pending()
        if not self._write_lock.acquire(timeout=_PATIENCE_SECONDS):
            self.fail("%s takes no more lines" % self.path)
            return
        try:
            self._flush_locked()
            self._end()
            self._flush_locked()
            self._release()
        finally:
            self._write_lock.release()
        if self.path is not None and self._mlflow_run_id:
            ended(self.path, self._mlflow_run_id)
        key = str(self.log_dir)
        if key in _past:
            _past[key] = _past[key]._replace(next_step=self.next_step, counted=counted)

    def _end(self) -> None:
        """The last lines: what recording has cost up to here, and that the log is complete."""
        self.facts({"recorder_cost": self.cost.fact()})
        now, clock = read_clocks()
        self.interval(END, None, now, now, clock)

    def fail(self, reason: str) -> None:
        """Stop recording and say so, once."""
        with self._fail_lock:
            if self._failed:
                return
            self._failed = True
        self.recording = False
        self._rows.clear()
        logger.warning(
            "stallscope: %s; rank %d is no longer recorded, training goes on",
            reason,
            self._world.rank,
        )

    def _open(self, monotonic: int, clock: int) -> None:
        launch = launch_name(os.environ, self._world.size)
        if self._sink != "logging":
            try:
                self.log_dir.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise OSError("it is a file, not a folder") from None
        identity = self._identity(launch, monotonic + clock)
        self._facts.update(
            {
                "run_id": identity.run_id,
                "generation": identity.generation,
                "launch": launch,
                "rank": self._world.rank,
                "size": self._world.size,
                "local_rank": self._world.local_rank,
                "flush_seconds": self._flush_seconds,
            }
        )
        self._sinks = self._begin({"first_step": self.next_step}, monotonic, clock)

    def _begin(self, facts: Dict[str, Any], monotonic: int, clock: int) -> List[Sink]:
        """Open sinks, and write the first lines of the log or of what it goes on in."""
        sinks: List[Sink] = []
        identity = _past[str(self.log_dir)].identity
        descriptor = None
        if self._sink != "logging":
            descriptor, self.path, self._part = self._new_file(identity)
        first = header(
            {
                **self._facts,
                "part": self._part,
                "anchor": {"monotonic_ns": monotonic, "wall_ns": monotonic + clock},
                "process_start_us": (process_start_ns() - monotonic) // 1000,
                **facts,
            }
        ).encode()
        second = facts_line({"recorder": __version__}).encode()
        if descriptor is not None:
            self._write_header(descriptor, first)
            sinks.append(self._going_on(first, second))
        if self._sink != "file":
            name = file_name(self._world.rank, identity.generation, self._part)
            records = LoggingSink(name[: -len(SUFFIX)])
            records.write(first + second)
            sinks.append(records)
        self._written = len(first + second)
        self.cost.wrote(len(first + second))
        if self._spool is not None:
            self.facts({"spooled": str(self._spool)})
        return sinks

    def _write_header(self, descriptor: int, first: bytes) -> None:
        """Write the header, and close the file: some mounts show what is in it only then."""
        file = FileSink(descriptor)
        try:
            file.write(first)
        finally:
            file.close()

    def _going_on(self, first: bytes, second: bytes) -> Union[FileSink, SpooledSink]:
        """What goes on after the header; that files can be appended to is tried, and not assumed."""
        assert self.path is not None
        if not is_to_be_spooled(self.log_dir):
            file = None
            try:
                file = FileSink(os.open(str(self.path), os.O_WRONLY | os.O_APPEND))
                file.write(second)
                return file
            except OSError as error:
                if file is not None:
                    file.close()
                if not cannot_append(error):
                    raise
        self._spool = SpooledSink(self.path, first + second)
        return self._spool

    def _identity(self, launch: Optional[str], wall_ns: int) -> RunIdentity:
        """A further session of this process goes on with its run; a first one joins the job's.

        Steps that come again, or another place among the ranks, are a new generation: all ranks run
        the same program, so all of them count alike.
        """
        key = str(self.log_dir)
        past = _past.get(key)
        if past is None:
            run_id = os.environ.get("STALLSCOPE_RUN_ID") or None
            if self._sink == "logging":
                # Without a folder to meet in, the parser brings ranks together by their launch.
                identity = RunIdentity(run_id or uuid.uuid4().hex[:12], 0)
            else:
                elastic = os.environ.get("HOROVOD_ELASTIC") == "1"
                identity = join_run(self.log_dir, self._world, run_id, launch, wall_ns, elastic)
        elif past.world == self._world and self.next_step >= _counted_before(past):
            identity = past.identity
            # The framework's count can lag behind (an optimizer that it does not know) or run ahead
            # (an update for a batch that never came): what counts is what was recorded.
            self.next_step += past.next_step - _counted_before(past)
        else:
            identity = past.identity._replace(generation=past.identity.generation + 1)
        _past[key] = _Past(identity, self._world, self.next_step, None)
        return identity

    def _new_file(self, identity: RunIdentity) -> Tuple[int, Path, int]:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        for part in range(_MOST_PARTS):
            path = self.log_dir / file_name(self._world.rank, identity.generation, part)
            try:
                return os.open(str(path), flags, 0o644), path, part
            except FileExistsError:
                continue
        raise OSError("%d logs of this rank are there already" % _MOST_PARTS)

    def _lines(self, row: Union[StepRow, IntervalRow, str]) -> str:
        if isinstance(row, str):
            return row
        if isinstance(row, IntervalRow):
            ends = self._sampler is not None and row.kind in (EPOCH, END)
            return (self._skipped() if ends else "") + self._formatter.interval(row)
        self._last_step = row.step
        if self._sampler is None:
            return self._formatter.step(row)
        return "".join(map(self._sampled, self._sampler.rows(row)))

    def _skipped(self) -> str:
        assert self._sampler is not None
        return "".join(map(self._sampled, self._sampler.rest()))

    def _sampled(self, row: Union[StepRow, SkippedRow]) -> str:
        if isinstance(row, SkippedRow):
            return self._formatter.skipped(row)
        return self._formatter.step(row)

    def _flush_locked(self) -> None:
        lines = []
        try:
            while self._rows:
                lines.append(self._lines(self._rows.popleft()))
                let_others_run(len(lines))
            if lines and self.recording:
                self._write("".join(lines))
                full = self._max_file_bytes and self._written > self._max_file_bytes
                if full and not self._closed:
                    self._go_on_in_another_file()
        except Exception as error:  # nothing that goes wrong here may reach training
            self.fail("cannot write %s: %s" % (self.path or "records", error))

    def _write(self, text: str) -> None:
        data = text.encode()
        for sink in self._sinks:
            sink.write(data)
        self._written += len(data)
        self.cost.wrote(len(data))

    def _go_on_in_another_file(self) -> None:
        """Close this one, and begin the next part with all facts up to now."""
        full, before, part, spool = self.path, self._sinks, self._part, self._spool
        monotonic, clock = read_clocks()
        first = self.next_step if self._last_step is None else self._last_step + 1
        self._part, self._spool = part + 1, None
        try:
            sinks = self._begin({"continues": True, "first_step": first}, monotonic, clock)
        except Exception:
            # Those that continue in the old one find everything as it was.
            self.path, self._part, self._spool = full, part, spool
            raise
        self._sinks, self._formatter = sinks, RowFormatter(monotonic, clock)
        self._close(before)
        if full is not None and self.path is not None and self._mlflow_run_id:
            ended(full, self._mlflow_run_id)
            watch(self.path, self._mlflow_run_id)

    def _release(self) -> None:
        self.recording = False
        sinks, self._sinks = self._sinks, []
        self._close(sinks)

    def _close(self, sinks: List[Sink]) -> None:
        for sink in sinks:
            try:
                sink.close()
            except OSError as error:  # network file systems report failed writes only here
                self.fail("cannot close %s: %s" % (self.path, error))

    def _take_what_is_pending(self) -> None:
        if self._before_flush is not None and not self._failed:
            try:
                self._before_flush()
            except Exception as error:  # as above: never into training
                self.fail("recording failed: %r" % error)

    def _flush_regularly(self) -> None:
        gives_way_to_others()
        last = time.monotonic()
        while not self._stop.wait(max(0.0, last + self._flush_seconds - time.monotonic())):
            if self._failed:
                return
            last = time.monotonic()
            self._take_what_is_pending()
            self.flush()
            self._copy_if_due()
            self.cost.background_ns = time.thread_time_ns()

    def _copy_if_due(self) -> None:
        """Bring what was spooled to its place; where that fails, the next time does it."""
        if self._spool is None or not self._copies.is_due(time.monotonic()):
            return
        try:
            self._spool.publish()
        except OSError as error:
            if not self._copy_failed:
                logger.warning(
                    "stallscope: the log cannot be copied to %s yet: %s; until it can be it is in %s",
                    self.path,
                    error,
                    self._spool,
                )
            self._copy_failed = True
            return
        self._copy_failed = False
        self._go_on_if_full(self._spool)

    def _go_on_if_full(self, spool: SpooledSink) -> None:
        """Now, as the place has just taken a file: where it takes none, nothing more is recorded."""
        with self._write_lock:
            if spool.is_full and not self._closed:
                try:
                    self._go_on_in_another_file()
                except OSError as error:
                    # That is tried again with the next copy.
                    if not self._further_file_refused:
                        logger.warning(
                            "stallscope: %s takes no further file: %s; the log goes on in %s",
                            self.log_dir,
                            error,
                            self.path,
                        )
                    self._further_file_refused = True


def _counted_before(past: _Past) -> int:
    """Steps that the framework had counted at the end of the last session."""
    return past.next_step if past.counted is None else past.counted
