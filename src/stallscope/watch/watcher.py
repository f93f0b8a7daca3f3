"""Look at runs repeatedly, and return what has happened since the last look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.stopped.stopped import Stopped, find_stopped
from stallscope.conditions import Condition, Outcome
from stallscope.errors import StallscopeError
from stallscope.formatting.numbers import amount
from stallscope.reports.run.json_content import stopped_content
from stallscope.run import Run

from .events import Event, utc
from .places import Place

#: The condition that the events describe in words of their own.
STOPPED = "stopped"
# One failure may be a file that another process is replacing.
_FAILURES = 2


@dataclass
class _WatchedRun:
    """The known state of a run."""

    #: The conditions that hold.
    held: set[str] = field(default_factory=set)
    undecided: set[str] = field(default_factory=set)
    completed: bool = False
    #: How the job stood still when it was last seen so.
    stopped: Stopped | None = None
    #: Whether some ranks may still describe where they are.
    incomplete: bool = False


@dataclass
class _WatchedPlace:
    place: Place
    runs: dict[str, _WatchedRun] = field(default_factory=dict)
    #: The ids of the runs at the last look.
    current: list[str] = field(default_factory=list)
    #: Failures in a row.
    failures: int = 0


class Watcher:
    """Watches the runs of some places.

    Args:
        places: the places.
        conditions: the conditions to evaluate.
        baseline: the run that runs are compared with.
        note: called with sentences about conditions that cannot be evaluated.
        now: returns the time in UTC.
    """

    def __init__(
        self,
        places: Sequence[Place],
        conditions: Sequence[Condition],
        *,
        baseline: Analysis | None = None,
        note: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._places = [_WatchedPlace(place) for place in places]
        self._conditions = {str(condition): condition for condition in conditions}
        self._needs_analysis = any(one.needs_analysis for one in conditions)
        self._baseline = baseline
        self._note = note
        self._now = now
        #: Whether a condition has held at any time.
        self.any_held = False

    @property
    def all_completed(self) -> bool:
        return all(
            not one.failures and all(one.runs[run].completed for run in one.current)
            for one in self._places
        )

    def look(self, *, first: bool = False, last: bool = False) -> Iterator[Event]:
        """Read all places once; yield what is new.

        Args:
            first: whether a place that cannot be read is an error.
            last: whether no other look follows, which might know more.

        Raises:
            StallscopeError: at the first look, if a place cannot be read.
        """
        for one in self._places:
            try:
                runs = one.place.look()
                # A run of a store is read on demand.
                events = [event for run in runs for event in self._look_at(run, one, last)]
            except StallscopeError as error:
                if first:
                    raise
                yield from self._failed(one, error)
                continue
            yield from self._recovered(one)
            one.current = [run.id for run in runs]
            yield from events

    def _failed(self, one: _WatchedPlace, error: StallscopeError) -> Iterator[Event]:
        one.failures += 1
        if one.failures == _FAILURES:
            text = f"{str(error).rstrip('.')}. Trying again."
            yield Event("unreadable", self._now(), one.place.where, text)

    def _recovered(self, one: _WatchedPlace) -> Iterator[Event]:
        failures, one.failures = one.failures, 0
        if failures >= _FAILURES:
            text = f"{one.place.where}: can be read again."
            yield Event("readable", self._now(), one.place.where, text)

    def _look_at(self, run: Run, one: _WatchedPlace, last: bool) -> list[Event]:
        """Evaluate the conditions for one run; return what has changed."""
        stopped = find_stopped(run)
        state = one.runs.setdefault(run.id, _WatchedRun())
        # Ranks notice a step that takes too long within a second or two of each other: the next
        # look shows who is missing.
        incomplete = stopped is not None and bool(stopped.undescribed)
        if incomplete and not state.incomplete and not state.held and not last:
            state.incomplete = True
            return []
        state.incomplete = incomplete
        outcomes = self._outcomes(run, stopped)
        events = [
            event
            for text, outcome in outcomes.items()
            for event in self._changes(run, one, state, text, outcome, stopped)
        ]
        state.stopped = stopped or state.stopped
        completed = run.status == "completed"
        if completed and not state.completed:
            events.append(self._event("completed", run, one, "completed."))
        state.completed = completed
        return events

    def _outcomes(self, run: Run, stopped: Stopped | None) -> dict[str, Outcome]:
        analysis = analyse(run, self._baseline) if self._needs_analysis else None
        return {
            text: condition.check_stopped(stopped)
            if analysis is None or not condition.needs_analysis
            else condition.check(analysis)
            for text, condition in self._conditions.items()
        }

    def _changes(
        self,
        run: Run,
        one: _WatchedPlace,
        state: _WatchedRun,
        text: str,
        outcome: Outcome,
        stopped: Stopped | None,
    ) -> Iterator[Event]:
        """Yield an event if a condition has begun to hold, or no longer holds."""
        if outcome.held is None:
            # What held is taken to hold until the opposite is known.
            if text not in state.undecided:
                self._note(f"--when {text} is undecided in {run.name}: {outcome.says}")
            state.undecided.add(text)
            return
        state.undecided.discard(text)
        if outcome.held and text not in state.held:
            self.any_held = True
            state.held.add(text)
            sentence = f"{text} holds: {outcome.says}."
            if text == STOPPED and stopped is not None:
                sentence = _stands_still(stopped)
            yield self._event("holds", run, one, sentence, text, stopped)
        elif not outcome.held and text in state.held:
            state.held.discard(text)
            sentence = f"{text} no longer holds: {outcome.says}."
            if text == STOPPED and state.stopped is not None:
                sentence = _goes_on(state.stopped, ended=run.status == "completed")
            yield self._event("ceased", run, one, sentence, text)

    def _event(
        self,
        kind: Literal["holds", "ceased", "completed"],
        run: Run,
        one: _WatchedPlace,
        sentence: str,
        condition: str | None = None,
        stopped: Stopped | None = None,
    ) -> Event:
        return Event(
            kind,
            self._now(),
            one.place.where,
            f"{run.name}: {sentence}",
            run.id,
            run.name,
            condition,
            stopped_content(stopped),
        )


def _stands_still(stopped: Stopped) -> str:
    since = "" if stopped.since is None else f" since {utc(stopped.since)}"
    return f"stopped{since}. {stopped.evidence}"


def _goes_on(stopped: Stopped, *, ended: bool) -> str:
    what = "ended" if ended else "goes on"
    duration = amount(stopped.seconds, "s")
    return f"{what}. It stood still for at least {duration} at step {stopped.step}."
