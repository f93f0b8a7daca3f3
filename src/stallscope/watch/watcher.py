"""Look at the runs of a place repeatedly, follow those that grow, and return the events since then."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Literal

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.stopped.stopped import Stopped, find_stopped
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.conditions.condition import Condition, Outcome
from stallscope.conditions.quantities import LogProgress
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.formatting.lists import listed
from stallscope.formatting.numbers import amount
from stallscope.reports.run.json_content import stopped_content
from stallscope.run import Run
from stallscope.text.figure_words import printed_so_far
from stallscope.text.summary_words import straggler_sentence

from .delivery import WatchEvent, utc
from .places import Place

#: The condition that events describe with its evidence.
STOPPED = "stopped"
# One failure may be a file that another process is replacing.
_FAILURES = 2

# How often the figures of a printed log are shown while it grows.
_FIGURES_SECONDS = 60.0

# Looking takes at most this share of the time, however large a run has grown.
_MOST_TIME_SHARE = 0.5
# The limit for looks that have begun when following ends.
_LAST_LOOK_SECONDS = 1.0


@dataclass
class _WatchedRun:
    """The known state of a run."""

    #: The conditions that hold.
    held: set[str] = field(default_factory=set)
    undecided: set[str] = field(default_factory=set)
    completed: bool = False
    #: The last hang of the job.
    stopped: Stopped | None = None
    #: The stragglers that have been reported: ranks and stage.
    stragglers: set[str] = field(default_factory=set)
    #: The logs' bytes at the last look, and the monotonic time of their last growth.
    bytes: int = -1
    grown_at: float = 0.0
    #: The last step of a printed log whose figures were shown, and the monotonic time of that.
    shown_step: int = -1
    shown_at: float = -math.inf


class Watcher:
    """Watches the runs at a place. For one thread at a time.

    Args:
        place: the place.
        conditions: the conditions to evaluate.
        baseline: the run that runs are compared with.
        note: called with sentences about conditions that cannot be evaluated.
        measured: called with the analysis of every run at every look, and with the seconds for which its
            logs have not grown; without it, runs are analysed only if a condition needs that.
        now: monotonic seconds.
    """

    def __init__(
        self,
        place: Place,
        conditions: Sequence[Condition],
        *,
        baseline: Analysis | None = None,
        note: Callable[[str], None] = lambda _: None,
        measured: Callable[[Analysis, float], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._conditions = {str(condition): condition for condition in conditions}
        self._needs_analysis = measured is not None or any(
            condition.needs_analysis for condition in conditions
        )
        self._names_stragglers = any(condition.names("stragglers") for condition in conditions)
        self._measured = measured
        self._now = now
        self._baseline = baseline
        self._note = note
        self._runs: dict[str, _WatchedRun] = {}
        #: The ids of the runs at the last look.
        self._current: list[str] = []
        #: Failures in a row.
        self._failures = 0
        #: Whether a condition has held at any time.
        self.any_held = False

    @property
    def all_completed(self) -> bool:
        """Whether all runs at the place had completed at the last look."""
        return not self._failures and all(self._runs[run].completed for run in self._current)

    def first_look(self) -> list[WatchEvent]:
        """Read the place; return events for conditions that hold already.

        Raises:
            StallscopeError: if the place cannot be read, other than a log without steps so far.
        """
        events: list[WatchEvent] = []
        try:
            self._look(events)
        except NotFoundError as error:
            if not self._waits_for_runs:
                raise
            self._failures += 1
            self._note(f"{str(error).rstrip('.')}; waiting for its first steps")
        return events

    def look(self) -> list[WatchEvent]:
        """Read new rows; return the events since the last look."""
        events: list[WatchEvent] = []
        try:
            self._look(events)
        except StallscopeError as error:
            if self._waits_for_runs and isinstance(error, NotFoundError):
                return events
            return [*events, *self._failed(error)]
        return [*self._recovered(), *events]

    @property
    def _waits_for_runs(self) -> bool:
        """Whether no look has found a run so far, and one may come."""
        return self._place.may_begin and not self._runs

    def _look(self, events: list[WatchEvent]) -> None:
        runs = self._place.look()
        self._current = [run.id for run in runs]
        for run in runs:
            self._runs.setdefault(run.id, _WatchedRun())
        for run in runs:
            # A run of a store is read here, on demand.
            events += self._look_at(run)

    def _failed(self, error: StallscopeError) -> Iterator[WatchEvent]:
        self._failures += 1
        if self._failures == _FAILURES:
            text = f"{str(error).rstrip('.')}. Trying again."
            yield WatchEvent("unreadable", datetime.now(UTC), self._place.where, text)

    def _recovered(self) -> Iterator[WatchEvent]:
        failures, self._failures = self._failures, 0
        if failures >= _FAILURES:
            text = f"{self._place.where}: can be read again."
            yield WatchEvent("readable", datetime.now(UTC), self._place.where, text)

    def _look_at(self, run: Run) -> list[WatchEvent]:
        """Evaluate the conditions for one run; return the changes."""
        state = self._runs[run.id]
        completed = run.status == "completed"
        if completed and state.completed and state.bytes == _log_bytes(run):
            return []
        stopped, silent_s = find_stopped(run), self._silent_s(run, state)
        progress = LogProgress(stopped, silent_s)
        analysis = analyse(run, self._baseline) if self._needs_analysis else None
        events = [
            event
            for text, outcome in self._outcomes(analysis, progress).items()
            for event in self._changes(run, state, text, outcome, stopped)
        ]
        events += self._figures(run, state, analysis)
        if analysis is not None:
            events += self._new_stragglers(run, state, analysis)
            if self._measured is not None:
                self._measured(analysis, silent_s)
        state.stopped = stopped or state.stopped
        if completed and not state.completed:
            events.append(self._event("completed", run, "completed."))
        state.completed = completed
        return events

    def _silent_s(self, run: Run, state: _WatchedRun) -> float:
        """Return for how long the logs have not grown; 0 once the run has completed."""
        size, now = _log_bytes(run), self._now()
        if size != state.bytes or run.status == "completed":
            state.bytes, state.grown_at = size, now
        return now - state.grown_at

    def _outcomes(self, analysis: Analysis | None, progress: LogProgress) -> dict[str, Outcome]:
        return {
            text: condition.check_progress(progress)
            if analysis is None or not condition.needs_analysis
            else condition.check(analysis, progress)
            for text, condition in self._conditions.items()
        }

    def _figures(
        self, run: Run, state: _WatchedRun, analysis: Analysis | None
    ) -> Iterator[WatchEvent]:
        """Yield the figures of a printed log's steps, now and then while it grows.

        Such a log shows neither its ranks nor its end, so that other events are rare.
        """
        now = self._now()
        if run.fact("known_from") is None or now - state.shown_at < _FIGURES_SECONDS:
            return
        printed = (analysis or analyse(run, self._baseline)).printed
        if printed is None or printed.recorded or int(printed.whole.step[-1]) == state.shown_step:
            return
        state.shown_step, state.shown_at = int(printed.whole.step[-1]), now
        yield self._event("steps", run, f"{printed_so_far(printed)}.")

    def _new_stragglers(
        self, run: Run, state: _WatchedRun, analysis: Analysis
    ) -> Iterator[WatchEvent]:
        """Yield an event for each straggler that no earlier look has found."""
        if not self._names_stragglers:
            return
        # Where no rank is named, lateness varies from step to step.
        for straggler in filter(lambda late: late.ranks, analysis.stragglers):
            what = _ranks_and_stage(straggler)
            if what not in state.stragglers:
                state.stragglers.add(what)
                event = self._event("straggler", run, f"{straggler_sentence(straggler)}.")
                yield replace(event, straggler=what)

    def _changes(
        self,
        run: Run,
        state: _WatchedRun,
        text: str,
        outcome: Outcome,
        stopped: Stopped | None,
    ) -> Iterator[WatchEvent]:
        """Yield an event if a condition has begun to hold, or no longer holds."""
        if outcome.held is None:
            # A condition that held counts as held until it is known not to.
            if text not in state.undecided:
                self._note(f"--when {text} is undecided in {run.name}: {outcome.why}")
            state.undecided.add(text)
            return
        state.undecided.discard(text)
        if outcome.held and text not in state.held:
            self.any_held = True
            state.held.add(text)
            sentence = f"{text} holds: {outcome.why}."
            if text == STOPPED and stopped is not None:
                sentence = _stopped_text(stopped)
            yield self._event("holds", run, sentence, text, stopped)
        elif not outcome.held and text in state.held:
            state.held.discard(text)
            sentence = f"{text} no longer holds: {outcome.why}."
            if text == STOPPED and state.stopped is not None:
                sentence = _resumed_text(state.stopped, ended=run.status == "completed")
            yield self._event("ceased", run, sentence, text)

    def _event(
        self,
        kind: Literal["holds", "ceased", "straggler", "completed", "steps"],
        run: Run,
        sentence: str,
        condition: str | None = None,
        stopped: Stopped | None = None,
    ) -> WatchEvent:
        return WatchEvent(
            kind,
            datetime.now(UTC),
            self._place.where,
            f"{run.name}: {sentence}",
            run.id,
            run.name,
            condition,
            stopped=stopped_content(stopped),
        )


def _log_bytes(run: Run) -> int:
    return sum(log.size for log in run.logs)


def _ranks_and_stage(straggler: Straggler) -> str:
    return f"{straggler.stage} of {listed('rank', straggler.ranks)}"


def _stopped_text(stopped: Stopped) -> str:
    since = "" if stopped.since is None else f" since {utc(stopped.since)}"
    return f"stopped{since}. {stopped.evidence}"


def _resumed_text(stopped: Stopped, *, ended: bool) -> str:
    what = "ended" if ended else "goes on"
    duration = amount(stopped.seconds, "s")
    return f"{what}. It hung for at least {duration} at step {stopped.step}."


# -- Follow several places at a time --------------------------------------------------------------


@dataclass(frozen=True)
class _Look:
    """The result of one look at a place."""

    watcher: Watcher
    events: list[WatchEvent]
    #: Whether all runs at the place have completed.
    all_completed: bool


def follow(
    watchers: Sequence[Watcher], interval_s: float, *, stay: bool = False
) -> Iterator[list[WatchEvent]]:
    """Yield new events, or an empty list after the interval, until all runs have completed.

    Each place has its own thread, so that a host that does not answer does not delay the others.

    Args:
        watchers: one for each place, after the first look.
        interval_s: the pause between two looks at a place.
        stay: whether to go on for ever, for runs to come.
    """
    open_places = {watcher for watcher in watchers if not watcher.all_completed}
    if not (open_places or stay):
        return
    with _looks(watchers, interval_s) as looks:
        while open_places or stay:
            try:
                look = looks.get(timeout=interval_s)
            except Empty:
                yield []
                continue
            if isinstance(look, Exception):
                raise look
            # A job may be started again after it has completed.
            (open_places.discard if look.all_completed else open_places.add)(look.watcher)
            yield look.events


@contextmanager
def _looks(
    watchers: Sequence[Watcher], interval_s: float
) -> Iterator[SimpleQueue[_Look | Exception]]:
    """Look at each place in a thread; at the end of the block, wait briefly for the last looks."""
    looks: SimpleQueue[_Look | Exception] = SimpleQueue()
    ended = threading.Event()
    # Daemons: the process can end while they wait for an answer.
    threads = [
        threading.Thread(
            target=_look_repeatedly, args=(watcher, interval_s, looks, ended), daemon=True
        )
        for watcher in watchers
    ]
    for thread in threads:
        thread.start()
    try:
        yield looks
    finally:
        ended.set()
        deadline = time.monotonic() + _LAST_LOOK_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _look_repeatedly(
    watcher: Watcher,
    interval_s: float,
    looks: SimpleQueue[_Look | Exception],
    ended: threading.Event,
) -> None:
    took = 0.0
    while not ended.wait(max(interval_s, took * (1 - _MOST_TIME_SHARE) / _MOST_TIME_SHARE)):
        start = time.monotonic()
        try:
            events = watcher.look()
        except Exception as error:
            looks.put(error)
            return
        took = time.monotonic() - start
        looks.put(_Look(watcher, events, watcher.all_completed))
