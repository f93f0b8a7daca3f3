"""Sample how often the training thread waits for Python's lock while another thread has it.

Looks come at random moments, so that the share of looks that find a wait is the share of time. The
training thread does nothing for them.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter, defaultdict
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from .guards import mark_background_thread
from .hangs import Frame, frames_of, is_users
from .step_log.line_format import INTERPRETER, InterruptionRow
from .thread_states import RUNNING, Glance

# Without busy threads there is nothing to see, so only their CPU times are read.
_IDLE_SECONDS = 0.5
_IDLE_SHARE = 0.01
# Looks go on after other threads were busy: they may be again.
_ON_NS = 20 * 10**9
# The mean time between two looks, which all together take at most this share of a core.
_PERIOD_NS = 25_000_000
_SHARE = 0.005
# A look stands for the time since the one before, but not for a pause of the sampler.
_LONGEST = 4
# After so many looks the next ones come half as often, down to a few a second: much is known by then.
_MANY, _LONGEST_PERIOD_NS = 4_000, 400_000_000
# Until the thread has slept for longer, looks are taken as they are; and they never count for more.
_PRIOR_NS, _LARGEST_SCALE = 200_000_000, 1.5
# The weight of the latest look in the mean cost of one.
_LATEST = 0.1
# A thread that had the lock has used CPU time since the last look.
_USED_NS = 50_000
# A look is late where cores are busy; after much longer it will not come.
_LATE_SECONDS, _LOST_SECONDS = 0.002, 5.0
_MOST_LINES, _THREADS_SHOWN = 500, 3
_OWN_THREADS = "stallscope"
_NO_CONTRAST = 0.05
# The kernel's number of the clock of a thread's CPU time, from linux/posix-timers.h.
_THREADS_CLOCK = 6


class TrainingThread(NamedTuple):
    """What ``threading.get_ident`` and ``threading.get_native_id`` return there."""

    ident: int
    native_id: int


class LockWaits:
    """Looks at the training thread from a thread of its own, once started.

    Args:
        training: the thread to look at.
        emit: receives a row for each look that finds the thread waiting.
        next_step: returns the number of the next step.
    """

    def __init__(
        self,
        training: TrainingThread,
        emit: Callable[[InterruptionRow], None],
        next_step: Callable[[], int],
    ) -> None:
        self._training = training
        self._emit, self._next_step = emit, next_step
        #: Whether waits are recorded if they happen: not where the system has no such state.
        self.is_on = False
        # Training has random numbers of its own.
        self._random = random.Random()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stallscope-lock", daemon=True)
        #: By native identity: the CPU time of each other thread at the last look.
        self._used: Dict[int, int] = {}
        self._checked = 0
        #: Where threads that Python did not start were at the last look.
        self._positions: Set[Tuple[int, int, int]] = set()
        self._period_ns, self._cost_ns = _PERIOD_NS, 0.0
        self._asleep = _Asleep()
        self._looks = self._waits = 0
        #: How often each line of each thread had the lock; several may have had it in one look. Another
        #: thread reads it.
        self._had_it: Dict[Tuple[str, Frame], float] = defaultdict(float)
        #: How often each thread computed when training did not wait, and when it did.
        self._computed: Tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look no more; the thread ends by itself."""
        self._stop.set()

    def fact(self) -> Optional[Dict[str, Any]]:
        """Return how often the thread was looked at and waited, and for whom; None without a wait."""
        if not self._waits:
            return None
        likely = {key: waits * self._contrast(key[0]) for key, waits in dict(self._had_it).items()}
        scale = self._waits / (sum(likely.values()) or 1.0)
        most = sorted(likely.items(), key=lambda item: -item[1])[:_THREADS_SHOWN]
        threads = [
            {
                "name": name,
                "file": file,
                "line": line,
                "function": code,
                "waits": round(part * scale, 1),
            }
            for (name, (file, line, code)), part in most
        ]
        return {"looks": self._looks, "waits": self._waits, "threads": threads}

    def _contrast(self, name: str) -> float:
        """Return how much more often a thread computes while training waits than otherwise.

        One that computes without the lock does so as often; without any contrast all are alike.
        """
        otherwise, while_waiting = (computed[name] for computed in self._computed)
        often = otherwise / max(self._looks - self._waits, 1)
        return max(while_waiting / max(self._waits, 1) - often, 0.0) + _NO_CONTRAST

    def _run(self) -> None:
        mark_background_thread()
        try:
            glance = Glance(self._training.native_id)
        except Exception:  # this system has no such state
            return
        self.is_on = True
        try:
            while not self._stop.wait(_IDLE_SECONDS):
                if self._others_are_busy():
                    self._look_on(glance)
        except Exception:  # the recording works without it
            self.is_on = False
        finally:
            glance.close()

    def _others_are_busy(self) -> bool:
        since, self._checked = self._checked, monotonic_ns()
        used = sum(thread.used_ns for thread in self._other_threads())
        return self._strangers_moved() or used > _IDLE_SHARE * (self._checked - since)

    def _look_on(self, glance: Glance) -> None:
        """Look at random moments until the other threads have long been idle."""
        last_busy = before = monotonic_ns()
        busy = self._busy_threads()
        self._asleep.restart(glance.awake_ns())
        while monotonic_ns() - last_busy < _ON_NS:
            cpu_ns = time.thread_time_ns()
            delay = int(self._period_ns * self._random.uniform(0.5, 1.5))
            at = monotonic_ns() + delay
            glance.begin(delay, [thread.native_id for thread in busy])
            if self._stop.wait(delay / 1e9 + _LATE_SECONDS):
                return
            states = self._seen(glance)
            if states is None:
                return
            busy = self._busy_threads()
            self._looks += 1
            if self._strangers_moved() or busy:
                last_busy = at
            computed = _computing(busy, states)
            state = states[self._training.native_id]
            waits = glance.is_wait(state)
            self._asleep.count(glance.awake_ns(), not state.startswith(RUNNING))
            self._computed[waits].update(thread.name for thread in computed)
            if waits:
                # A thread that this one has taken the lock from wants it back.
                back = [thread for thread in computed if glance.waits_now(thread.native_id)]
                stands_for = min(at - before, _LONGEST * self._period_ns) * self._asleep.scale
                self._record_wait(at, int(stands_for), back or computed, busy)
            before = at
            self._cost_ns += _LATEST * (time.thread_time_ns() - cpu_ns - self._cost_ns)
            rarely = min(1 << (self._looks // _MANY), _LONGEST_PERIOD_NS // _PERIOD_NS)
            period_ns = rarely * max(_PERIOD_NS, int(self._cost_ns / _SHARE))
            self._period_ns = min(period_ns, _LONGEST_PERIOD_NS)

    def _seen(self, glance: Glance) -> Optional[Dict[int, bytes]]:
        """Return what a look has seen; None if the recording ends.

        Raises:
            TimeoutError: if the look does not end, as in a forked process.
        """
        until = time.monotonic() + _LOST_SECONDS
        while time.monotonic() < until:
            states = glance.states()
            if states is not None:
                return states
            if self._stop.wait(_LATE_SECONDS):
                return None
        raise TimeoutError("the C library does not look")

    def _record_wait(
        self, at: int, stands_for: int, holders: List[_Thread], busy: List[_Thread]
    ) -> None:
        """Record a wait and who had the lock; nothing if only the recorder can have had it."""
        strangers = [] if holders else list(self._strangers().values())[:1]
        had = [("a thread of a library", frame) for frame in strangers]
        if not had:
            frames = sys._current_frames()
            threads = [thread for thread in holders or busy if thread.ident in frames]
            had = [(thread.name, frames[thread.ident]) for thread in threads]
        if not had:
            return
        self._waits += 1
        for name, frame in had:
            line = _line(frame)
            if len(self._had_it) < _MOST_LINES or (name, line) in self._had_it:
                self._had_it[name, line] += 1 / len(had)
        self._emit(InterruptionRow(INTERPRETER, self._next_step(), at, at + stands_for, 1))

    def _busy_threads(self) -> List[_Thread]:
        """Return other threads that have used CPU time since the last look, most first."""
        busy = [thread for thread in self._other_threads() if thread.used_ns > _USED_NS]
        return sorted(busy, key=lambda thread: -thread.used_ns)

    def _other_threads(self) -> List[_Thread]:
        """Return Python's other threads, with the CPU time that they used since the last call."""
        threads, used = [], {}
        # Without threading's lock, which a hung thread could hold.
        for ident, thread in list(getattr(threading, "_active", {}).items()):
            native_id = getattr(thread, "native_id", None)
            name = str(thread.name)
            is_training = ident == self._training.ident
            if native_id is None or is_training or name.startswith(_OWN_THREADS):
                continue
            try:
                used[native_id] = time.clock_gettime_ns(~native_id << 3 | _THREADS_CLOCK)
            except OSError:  # it has just ended
                continue
            since = used[native_id] - self._used.get(native_id, used[native_id])
            threads.append(_Thread(ident, native_id, name, since))
        self._used = used
        return threads

    def _strangers(self) -> Dict[int, FrameType]:
        """Return the frames of threads that Python did not start, such as TensorFlow's."""
        known = {*getattr(threading, "_active", {}), self._training.ident}
        frames = sys._current_frames().items()
        return {ident: frame for ident, frame in frames if ident not in known}

    def _strangers_moved(self) -> bool:
        """Return whether one of these threads is at another place than at the last look."""
        before = self._positions
        self._positions = {
            (ident, id(frame), frame.f_lasti) for ident, frame in self._strangers().items()
        }
        return bool(self._positions - before)


class _Asleep:
    """Compares how long the training thread slept, by the kernel, with the looks that found it asleep.

    On busy cores looks come when a core is free, and so too often when the training thread sleeps.
    """

    def __init__(self) -> None:
        self._slept = self._seen = float(_PRIOR_NS)
        self._at = 0
        self._awake_ns: Optional[int] = None

    @property
    def scale(self) -> float:
        """The time asleep as a multiple of what the looks say."""
        return min(self._slept / self._seen, _LARGEST_SCALE)

    def restart(self, awake_ns: Optional[int]) -> None:
        """Begin to count again, after a time without looks."""
        self._at, self._awake_ns = monotonic_ns(), awake_ns

    def count(self, awake_ns: Optional[int], is_asleep: bool) -> None:
        """Count the time since the last look; where the kernel does not say, nothing is counted."""
        before, since = self._awake_ns, self._at
        self.restart(awake_ns)
        if before is not None and awake_ns is not None:
            self._slept += max(self._at - since - (awake_ns - before), 0)
            self._seen += (self._at - since) * is_asleep


class _Thread(NamedTuple):
    ident: int
    native_id: int
    name: str
    #: CPU time since the last look.
    used_ns: int


def _computing(busy: List[_Thread], states: Dict[int, bytes]) -> List[_Thread]:
    """Return the threads that computed at a look, one of which had the lock; unknown ones, too."""
    return [thread for thread in busy if states.get(thread.native_id, RUNNING).startswith(RUNNING)]


def _line(frame: FrameType) -> Frame:
    """Return the innermost line of the user's code in a thread, or of any code."""
    frames = frames_of(frame)
    return next(filter(is_users, frames), frames[0])
