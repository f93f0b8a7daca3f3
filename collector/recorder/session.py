"""Record a session, from the start of training to its end, in one log.

The training thread only appends to a list. A background thread formats rows as lines and writes whole
lines, at least every ``flush_seconds``, so that after SIGKILL everything up to the last flush can be
read. A failure ends the recording with one warning; training continues.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Optional

from . import end_summary
from .guards import Cost, mark_background_thread, read_clocks, yield_to_training
from .hangs import Position, PositionReader, StepWatch, stack_file_of
from .input import input_times
from .interruptions import Interruptions
from .job.job_facts import known
from .job.world import World, launch_of_training
from .lock_waits import TrainingThread
from .machine.monitor import Monitor
from .options import Options
from .row_lines import Row, RowLines
from .step_log.line_format import END, EPOCH, IntervalRow, StepRow, TokensRow, facts_line
from .step_log.log_files import LogFiles
from .step_log.run_identity import join_or_continue_run, session_closed
from .subprocesses import finish, start_scalars, watch

logger = logging.getLogger("stallscope")

# A file system that takes longer than this for the last lines must not delay the end of training.
_PATIENCE_SECONDS = 5.0
# Lines of a very fast training are written in several pieces, and more often, which holds less memory.
_LINES_PER_WRITE = 1024
_SHORTEST_PAUSE_SECONDS = 0.05


class Session:
    """Rows and facts of one rank, written to one step log.

    Args:
        options: the arguments of StepLogger.
        world: the rank of this process.
        facts: the facts of the training.
        counted: the steps that the framework has counted so far. It numbers the session's first step,
            unless an earlier session in the folder recorded another count.
        before_flush: called before every flush, from the flushing thread, and once more at the end.
        position: returns the progress of the step in flight.
    """

    def __init__(
        self,
        options: Options,
        world: World,
        facts: Dict[str, Any],
        counted: int,
        before_flush: Optional[Callable[[], None]] = None,
        position: PositionReader = Position,
    ) -> None:
        log_dir, sampling = options.log_dir, options.sampling
        self.log_dir = log_dir
        self.next_step = counted
        self.world = world
        self._options = options
        self._before_flush = before_flush
        self._lines = RowLines(sampling)
        self._position = position
        self._monitor: Optional[Monitor] = None
        #: All facts so far: a log that continues in another file starts with them.
        self._facts = dict(facts)
        if sampling is not None:
            self._facts["sampling"] = sampling.fact()
        self._facts_lock = threading.Lock()
        self._files: Optional[LogFiles] = None
        #: Whether rows are written. Every step reads it, so it is not a property.
        self.recording = False
        self._next_file_refused = False
        # A deque: the training thread appends and another thread takes, without a lock.
        self._rows: Deque[Row] = deque()
        training = TrainingThread(threading.get_ident(), threading.get_native_id())
        self._interruptions = Interruptions(
            self._rows.append, lambda: self.next_step, training, options.machine, self._pauses
        )
        self._write_lock = threading.Lock()
        self._fail_lock = threading.Lock()
        self._stop = threading.Event()
        self._failed = False
        self._closed = False
        #: Called on the flushing thread after a failure, to undo what recording has changed.
        self.after_failure: Optional[Callable[[], None]] = None
        #: The cost of recording so far.
        self.cost = Cost()
        # A forked child, such as a loader's worker, has a copy of all this and must not touch it.
        self._pid = os.getpid()
        self._training_thread = training.ident
        self._watch: Optional[StepWatch] = None
        self._lines_written = 0
        self._thread = threading.Thread(  # before anything can close the session
            target=self._flush_regularly, name="stallscope-flush", daemon=True
        )
        try:
            run_id = self._open()
        except Exception as error:
            self.fail("cannot write to %s: %s" % (log_dir, error))
            return
        self.recording = True
        try:
            self._begin(run_id)
        except Exception as error:  # such as no more threads
            self.fail("recording failed: %r" % error)

    def _begin(self, run_id: str) -> None:
        """Start everything that accompanies the recording, last the thread that writes it."""
        self._lines.own_steps = end_summary.begin(self.log_dir, self.world, self._options.summary)
        if self.path is not None:
            input_times.recording_started(self.log_dir, run_id)
            start_scalars(self.log_dir, run_id, self._options.scalars, self.world.rank)
            if self._options.mlflow_run_id:
                watch(self.path, self._options.mlflow_run_id)
        if not self._closed:
            self._interruptions.start()
            self.facts({"interruptions": self._interruptions.kinds})
            self._thread.start()
            atexit.register(self.close)

    @property
    def path(self) -> Optional[Path]:
        """The current file of the log; None where it has none."""
        return None if self._files is None else self._files.path

    @property
    def closed(self) -> bool:
        """Return whether the log is closed or about to close: last rows and facts must come now."""
        return self._closed

    def step(self, row: StepRow) -> None:
        self.next_step = row.step + 1
        self._rows.append(row)

    def late_step(self, row: StepRow) -> None:
        """Add a step that was numbered earlier: ``next_step`` is already past it."""
        self._rows.append(row)

    def tokens(self, row: TokensRow) -> None:
        """Add the tokens in a batch, and what pads them, or those of a rank's experts."""
        self._rows.append(row)

    def interval(self, kind: str, epoch: Optional[int], begin: int, end: int) -> None:
        clock = read_clocks()[1]
        self._rows.append(IntervalRow(kind, self.next_step, epoch, begin, end, clock))
        if self._watch is not None and kind != EPOCH:
            self._watch.pause = None
        if kind == EPOCH and self._files is not None:
            self._files.copies.epoch_ended(time.monotonic())

    def pause(self, kind: str) -> None:
        """Note that something other than training starts now; ``interval`` ends it."""
        if self._watch is not None:
            self._watch.pause = (kind, time.monotonic_ns())

    def _pauses(self) -> bool:
        return self._watch is not None and self._watch.pause is not None

    def is_training_thread(self) -> bool:
        """Return whether this thread has opened the session."""
        return threading.get_ident() == self._training_thread

    def beside_training(self, kind: str, begin: int, end: int) -> None:
        """Record a save or an evaluation on another thread, in monotonic nanoseconds."""
        self._interruptions.beside_training(kind, begin, end)

    def postpone_watch(self, until: int) -> None:
        """Note that a step may take until this moment (monotonic nanoseconds) before it is overdue."""
        if self._watch is not None:
            self._watch.postpone(until)

    def facts(self, facts: Dict[str, Any]) -> None:
        """Record facts that are known only after the start; later values replace earlier ones."""
        with self._facts_lock:
            self._facts = {**self._facts, **facts}
        self._rows.append(facts_line(facts))

    def renumber(self, first_step: int) -> None:
        """Number the first step of the session; called before it, where the count was wrong."""
        self.next_step = first_step
        self.facts({"first_step": first_step})

    def flush(self) -> None:
        """Write everything recorded so far, as whole lines in as few writes as memory allows."""
        with self._write_lock:
            self._flush_locked()

    def close(self, counted: Optional[int] = None) -> None:
        """Write the end row and close the file; a second call does nothing.

        ``counted`` is the number of steps that the framework has counted; None if that is unknown.
        """
        files = self._files
        if self._closed or files is None or not files.is_open or os.getpid() != self._pid:
            return
        self._closed = True
        self._interruptions.stop()
        atexit.unregister(self.close)
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=_PATIENCE_SECONDS)
        self._run_before_flush()
        if not self._write_lock.acquire(timeout=_PATIENCE_SECONDS):
            self.fail("%s accepts no more lines" % self.path)
            return
        try:
            self._flush_locked()
            self._end()
            self._flush_locked()
            self.recording = False
            files.close()
        finally:
            self._write_lock.release()
        if self.path is not None and self._options.mlflow_run_id:
            finish(self.path, self._options.mlflow_run_id)
        session_closed(self.log_dir, self.next_step, counted)
        if self._lines.own_steps is not None and not self._failed:
            run_id, options, steps = self._facts["run_id"], self._options, self._lines.own_steps
            about = (self.log_dir, run_id, self.world, steps, options.sink, options.mlflow_run_id)
            end_summary.training_ended(end_summary.Training(*about))

    def _end(self) -> None:
        """Write the last lines: the cost of recording, and that the log is complete."""
        went_on = None if self._watch is None else self._watch.taken_back()
        if went_on is not None:
            self._rows.append(facts_line(went_on))
        self.facts({**self._interruptions.facts(), "recorder_cost": self.cost.fact()})
        now = time.monotonic_ns()
        self.interval(END, None, now, now)

    def fail(self, reason: str) -> None:
        """Stop recording and warn, once."""
        with self._fail_lock:
            if self._failed:
                return
            self._failed = True
        self.recording = False
        self._interruptions.stop()
        self._rows.clear()
        # The thread clears up, which may be in the middle of what there is to undo.
        self._stop.set()
        logger.warning(
            "stallscope: %s; rank %d is no longer recorded, training goes on",
            reason,
            self.world.rank,
        )

    def _open(self) -> str:
        """Join the run and open the log; return the run's id."""
        launch = launch_of_training(self.world.size)
        has_folder = self._options.sink != "logging"
        if has_folder:
            try:
                self.log_dir.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise OSError("it is a file, not a folder") from None
        clocks = read_clocks()
        identity, self.next_step = join_or_continue_run(
            self.log_dir, self.world, self.next_step, launch, sum(clocks), has_folder
        )
        self._facts.update(
            {
                "run_id": identity.run_id,
                "generation": identity.generation,
                "launch": launch,
                "rank": self.world.rank,
                "size": self.world.size,
                "local_rank": self.world.local_rank,
                "flush_seconds": self._options.flush_seconds,
            }
        )
        files = LogFiles(
            self.log_dir, self.world, identity.generation, self._options.sink, self.cost, self.fail
        )
        files.start_part({**self._facts, "first_step": self.next_step}, clocks)
        self._files = files
        stacks = stack_file_of(files.path) if self._options.stacks else None
        self._watch = self._lines.watch = StepWatch(self._training_thread, clocks[0], stacks)
        self._record_spool(files)
        return identity.run_id

    def _record_spool(self, files: LogFiles) -> None:
        if files.spooled_in is not None:
            self.facts({"spooled": files.spooled_in})

    def _flush_locked(self) -> None:
        files, lines = self._files, []
        try:
            while self._rows and files is not None:
                lines.append(self._lines.of(self._rows.popleft(), files.formatter))
                yield_to_training(len(lines))
                if len(lines) >= _LINES_PER_WRITE:
                    self._write(files, lines)
                    lines.clear()
            if lines and files is not None:
                self._write(files, lines)
        except Exception as error:  # no error may reach training
            self.fail("cannot write %s: %s" % (self.path or "records", error))

    def _write(self, files: LogFiles, lines: List[str]) -> None:
        if not self.recording:
            return
        files.write("".join(lines).encode())
        self._lines_written += len(lines)
        most = self._options.max_file_bytes
        if most and files.size > most and not self._closed:
            self._start_next_file(files)

    def _start_next_file(self, files: LogFiles) -> None:
        """Close this file and start the next part with all facts so far."""
        full, clocks = files.path, read_clocks()
        last = self._lines.last_step
        first = self.next_step if last is None else last + 1
        continued = {"continues": True, "first_step": first}
        files.start_part({**self._facts, **continued}, clocks)
        if self._watch is not None:
            self._watch.origin = clocks[0]
        self._record_spool(files)
        mlflow_run_id = self._options.mlflow_run_id
        if full is not None and files.path is not None and mlflow_run_id:
            finish(full, mlflow_run_id)
            watch(files.path, mlflow_run_id)

    def _run_before_flush(self) -> None:
        if self._before_flush is not None and not self._failed:
            try:
                self._before_flush()
            except Exception as error:  # no error may reach training
                self.fail("recording failed: %r" % error)

    def _flush_regularly(self) -> None:
        mark_background_thread()
        self._start_monitor()
        try:
            self._flush_until_the_end()
        finally:
            self._end_monitor()
            if self._failed and self.after_failure is not None:
                known(self.after_failure)

    def _flush_until_the_end(self) -> None:
        last, pause, written = time.monotonic(), self._options.flush_seconds, 0
        while not self._stop.wait(max(0.0, last + pause - time.monotonic())):
            before, planned, last = last, last + pause, time.monotonic()
            self._read_machine()
            news = self._interruptions.news()
            if news:
                self.facts(news)
            self._run_before_flush()
            self.flush()
            # After the rows: they show progress.
            if self._watch_step(planned, last):
                self.flush()
            pause = self._pause_until_flush(self._lines_written - written, last - before)
            written = self._lines_written
            self._copy_if_due(last)
            self.cost.background_ns = time.thread_time_ns()
        if not self._failed:
            self._read_machine(at_the_end=True)

    def _pause_until_flush(self, lines: int, seconds: float) -> float:
        """Return after how many seconds to flush again, when so many lines came in so many seconds."""
        usual = self._options.flush_seconds
        until_full = seconds * _LINES_PER_WRITE / lines if lines else usual
        return min(usual, max(until_full, _SHORTEST_PAUSE_SECONDS))

    def _start_monitor(self) -> None:
        """Open the kernel's files on this thread, not on the training thread."""
        monitor = known(lambda: Monitor(self.world.local_rank)) if self._options.machine else None
        if monitor is not None:
            self.facts({"machine_columns": monitor.columns})
            self._monitor = monitor
            self._read_machine()

    def _read_machine(self, at_the_end: bool = False) -> None:
        monitor = self._monitor
        if monitor is None:
            return
        try:
            now = time.monotonic_ns()
            row = monitor.row(now, at_the_end)
            connections = monitor.connections(now, at_the_end)
        except Exception:  # the recording works without it
            self._end_monitor()
            return
        if row is not None:
            self._rows.append(row)
        if connections is not None:
            self.facts(connections)

    def _end_monitor(self) -> None:
        """Close the monitor and its files: a process may have many sessions."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close()

    def _watch_step(self, planned: float, now: float) -> bool:
        """Queue facts of an overdue step and of suspensions; return whether there are any."""
        if self._watch is None:
            return False
        try:
            slept = self._watch.process_slept(int(planned * 1e9), int(now * 1e9))
            overdue = self._watch.overdue(time.monotonic_ns(), self.next_step, self._position)
        except Exception as error:  # no error may reach training
            self.fail("recording failed: %r" % error)
            return False
        events = [facts for facts in (slept, overdue) if facts is not None]
        self._rows.extend(map(facts_line, events))
        return bool(events)

    def _copy_if_due(self, flushed: float) -> None:
        """Copy a spooled log to its place, and then start another file if the log is large.

        The place has just accepted a file. If it refuses another one, recording continues in the old
        one.
        """
        files = self._files
        if files is None or not files.copy_if_due(flushed):
            return
        with self._write_lock:
            if not files.spool_is_full or self._closed:
                return
            try:
                self._start_next_file(files)
            except OSError as error:
                # The next copy tries again.
                if not self._next_file_refused:
                    logger.warning(
                        "stallscope: %s takes no further file: %s; the log continues in %s",
                        self.log_dir,
                        error,
                        files.path,
                    )
                self._next_file_refused = True
