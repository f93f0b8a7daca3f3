"""Watch the step in flight: its progress, and the stacks of the process while it takes too long.

Everything here runs on the recorder's own thread and adds no work to the training thread: the progress
is read from timestamps that the recording keeps anyway.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple, Union

from .step_log.line_format import SUFFIX as LOG_SUFFIX
from .step_log.line_format import IntervalRow, StepRow

# A step is overdue when it takes longer than the longest of these.
_TIMES_MEDIAN = 10
_OVERDUE_NS = 5_000_000_000
# With fewer steps the usual time is unknown: the first ones trace and compile.
_FEWEST_STEPS = 5
_OVERDUE_AT_START_NS = 30_000_000_000
_MEDIAN_OF = 101
# A step in flight is written at every flush at first, and then more rarely: a job may hang for days.
_OFTEN_NS = 60_000_000_000
_RARE_PAUSE_NS = 4_500_000_000
# When the stacks of all threads are written, counted from the last progress.
_STACKS_AFTER_NS = (30_000_000_000, 300_000_000_000)
# A flush that comes this much later than planned shows that the whole process was suspended.
_SUSPENDED_NS = 3_000_000_000
_MOST_SUSPENSIONS = 20

#: The end of the names of files with stacks.
SUFFIX = ".stacks.txt"
#: The most frames of one stack, from the innermost.
MOST_FRAMES = 40
_MOST_THREADS = 200
_MOST_BYTES = 512 * 1024
# A loader may have many threads, all alike.
_MOST_OTHERS = 3
# Parts of the paths of packages, of Python and of the recorder.
_NOT_THE_USERS = ("-packages/", "/lib/python3", "/stallscope/collector/recorder/")
#: A frame: file, line number, function.
Frame = Tuple[str, int, str]


class Position(NamedTuple):
    """The progress of a rank in the step in flight, in monotonic nanoseconds.

    None was not reached, or the host cannot see it. Without ``begin`` the step has not begun. A time
    before ``begin`` belongs to an earlier step.
    """

    begin: Optional[int] = None
    data: Optional[int] = None
    ready: Optional[int] = None
    reduced: Optional[int] = None


#: Returns the training's progress; called on the flushing thread.
PositionReader = Callable[[], Position]


def running_frame(thread: Optional[int], code: Any) -> Optional[FrameType]:
    """Return the innermost frame of a function that a thread is running; None where it is not.

    Args:
        thread: as ``threading.get_ident`` returns it.
        code: the function's code object.
    """
    frame = None if thread is None else sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


class StepWatch:
    """Notices a step that takes too long, and describes it as facts for the log.

    Args:
        thread: the identity of the training thread, as ``threading.get_ident`` returns it.
        origin: the anchor of the log's first file, in monotonic nanoseconds.
        stacks: where the stacks of all threads go; None writes none.
    """

    def __init__(self, thread: int, origin: int, stacks: Optional[StackFile]) -> None:
        self._thread = thread
        #: The anchor of the current file: times in the facts are relative to it.
        self.origin = origin
        self._stacks = stacks
        self._times: Deque[int] = deque(maxlen=_MEDIAN_OF)
        self._progress = origin
        self._last_end: Optional[int] = None
        #: The pause between steps that runs now: its kind and its start.
        self.pause: Optional[Tuple[str, int]] = None
        self._written_at = 0
        #: The progress before the step that was described last.
        self._described = origin
        self._dumps = 0
        #: The training thread's stack at the last check, and since which check it is the same.
        self._stack: List[Frame] = []
        self._stack_since = origin
        # Starts and ends, in monotonic nanoseconds.
        self._suspensions: List[Tuple[int, int]] = []
        self._woke_late = False
        #: When the process last continued after a suspension. Times count from there, because other
        #: ranks may have been suspended as well and continue a little later. Also where an input probe's
        #: fetches may take longer than a step.
        self._resumed = origin

    def row_written(self, row: Union[StepRow, IntervalRow]) -> None:
        """Take note of a row that has just been written."""
        if isinstance(row, StepRow):
            if self._last_end is not None:
                self._times.append(row.end - self._last_end)
            self._last_end = row.end
        else:
            # The next step's time does not include it.
            self._last_end = None
        if row.end > self._progress:
            self._progress = row.end
            self._dumps = 0

    def process_slept(self, planned: int, now: int) -> Optional[Dict[str, Any]]:
        """Return facts where this thread woke much later than planned: the process was suspended."""
        woke_late = now - planned >= _SUSPENDED_NS
        # Only once in a row: a hang may hold the GIL for seconds again and again.
        if woke_late and not self._woke_late:
            self._resumed = now
        self._woke_late = woke_late
        if not woke_late or len(self._suspensions) >= _MOST_SUSPENSIONS:
            return None
        self._suspensions.append((planned, now))
        return {
            "suspended": [
                {"since_us": self._us(since), "until_us": self._us(until)}
                for since, until in self._suspensions
            ]
        }

    def postpone(self, until: int) -> None:
        """Count a step's time from a later moment, because ranks fetch several batches until then.

        Args:
            until: monotonic nanoseconds.
        """
        self._resumed = until

    def overdue(self, now: int, step: int, read: PositionReader) -> Optional[Dict[str, Any]]:
        """Return facts of the step in flight if it is overdue and was not described just now.

        After progress, the fact becomes None, and another one holds the time of the progress.

        Args:
            now: monotonic nanoseconds.
            step: the number of the step in flight.
            read: returns its progress.
        """
        waited, usual_ns = now - self._progress, self._usual_ns()
        if min(waited, now - self._resumed) < _limit_ns(usual_ns):
            return self.taken_back()
        if waited > _OFTEN_NS and now - self._written_at < _RARE_PAUSE_NS:
            return None
        first_look = not self._written_at or self._described != self._progress
        self._written_at, self._described = now, self._progress
        described = {
            "step": step,
            "since_us": self._us(self._progress),
            "seen_us": self._us(now),
            "usual_us": None if usual_ns is None else int(usual_ns) // 1000,
            **self._reached(read()),
        }
        if self._stacks is not None:
            stack = frames_of(sys._current_frames().get(self._thread))
            if first_look or stack != self._stack:
                self._stack, self._stack_since = stack, now
            described["stack"] = stack
            described["stack_since_us"] = self._us(self._stack_since)
            described["other_threads"] = stacks_in_user_code(except_thread=self._thread)
            self._write_stacks(waited, step)
        return {"in_flight": described}

    def taken_back(self) -> Optional[Dict[str, Any]]:
        """Return facts that withdraw the description; None without progress since."""
        if not self._written_at or self._progress <= self._described:
            return None
        self._written_at = 0
        return {"in_flight": None, "went_on_us": self._us(self._progress)}

    def _usual_ns(self) -> Optional[float]:
        """Return the usual time of a step; None while it is unknown."""
        return median(self._times) if len(self._times) >= _FEWEST_STEPS else None

    def _reached(self, position: Position) -> Dict[str, Any]:
        """Return the last timestamp that was reached, and when."""
        if self.pause is not None:
            kind, begin = self.pause
            return {"reached": "end", "reached_us": self._us(begin), "pause": kind}
        reached, at = "end", self._progress
        for name, timestamp in zip(Position._fields, position):
            if timestamp is not None and timestamp >= (position.begin or 0):
                reached, at = name, max(at, timestamp)
        return {"reached": reached, "reached_us": self._us(at)}

    def _write_stacks(self, waited: int, step: int) -> None:
        if self._dumps < len(_STACKS_AFTER_NS) and waited >= _STACKS_AFTER_NS[self._dumps]:
            self._dumps += 1
            assert self._stacks is not None
            self._stacks.write("step %d, after %d s without progress" % (step, waited // 10**9))

    def _us(self, monotonic_ns: int) -> int:
        return (monotonic_ns - self.origin) // 1000


def _limit_ns(usual_ns: Optional[float]) -> float:
    """Return how long a step may take."""
    return _OVERDUE_AT_START_NS if usual_ns is None else overdue_ns(usual_ns)


def overdue_ns(usual_ns: float) -> float:
    """Return the time after which a job hangs in a step, from the usual time of a step."""
    return max(_OVERDUE_NS, _TIMES_MEDIAN * usual_ns)


# -- Write the Python stacks of all threads to a file next to the log -----------------------------
#
# No lock is taken that a hung training could hold, no signal is sent, and no source file is read: a
# stack is a list of file names, line numbers and names of functions. It contains no values of
# variables.


def frames_of(frame: Optional[FrameType]) -> List[Frame]:
    """Return the frames of a thread's stack, the innermost first."""
    frames: List[Frame] = []
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        # A frame may be at no line, as between instructions of generated code.
        frames.append((code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_name))
        frame = frame.f_back
    return frames


def stacks_in_user_code(except_thread: int) -> List[List[Frame]]:
    """Return the stacks of other threads that run code of the user, such as a loader's generator."""
    stacks: List[List[Frame]] = []
    for thread, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        frames = frames_of(frame) if thread != except_thread else []
        if any(map(is_users, frames)) and len(stacks) < _MOST_OTHERS:
            stacks.append(frames)
    return stacks


def is_users(frame: Frame) -> bool:
    """Return whether the code is the user's: in a file that is not of a package, Python or the recorder.

    Python's prefix does not help: users' programs are below ``/usr`` as well.
    """
    path = frame[0].replace("\\", "/")
    return path.endswith(".py") and not any(part in path for part in _NOT_THE_USERS)


class StackFile:
    """A file of stacks, made when the first ones are written and bounded in size.

    Without a path nothing is written.
    """

    def __init__(self, path: Optional[Path]) -> None:
        self.path = path
        self._size = 0

    def write(self, title: str) -> None:
        """Append the stacks of all threads; errors are ignored, as the log has the main stack."""
        if self.path is None:
            return
        try:
            text = _stacks(title).encode("utf-8", "replace")[: _MOST_BYTES - self._size]
            if text:
                flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
                descriptor = os.open(str(self.path), flags, 0o644)
                try:
                    self._size += os.write(descriptor, text)
                finally:
                    os.close(descriptor)
        except OSError:
            self._size = _MOST_BYTES


def stack_file_of(log: Optional[Path]) -> StackFile:
    """Return the file of stacks next to a log; without a path if the log has no file."""
    if log is None:
        return StackFile(None)
    return StackFile(log.with_name(log.name[: -len(LOG_SUFFIX)] + SUFFIX))


def _stacks(title: str) -> str:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    names = _thread_names()
    lines = ["# %s, process %d: %s" % (now, os.getpid(), title)]
    for thread, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        lines += ["", "thread %s (%d), innermost call first:" % (names.get(thread, "?"), thread)]
        lines += ["  %s:%d in %s" % location for location in frames_of(frame)]
    return "\n".join(lines) + "\n\n"


def _thread_names() -> "dict[int, str]":
    """Return the names of threads without ``threading``'s lock, which a hung thread could hold."""
    active = getattr(threading, "_active", {})
    return {number: str(thread.name) for number, thread in list(active.items())}
