"""Describe events from other logs: what happened, to which ranks, and when."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.formatting.lists import joined, listed
from stallscope.formatting.numbers import amount
from stallscope.formatting.plain import plain
from stallscope.run import Event, Run

#: Above a list of events.
TITLE = "Events from other logs"
#: The time of an event without a known time.
NOT_KNOWN = "not known"

# Events that stop a job or take ranks from it, and events that slow it.
_TROUBLE = (
    {"stall_shutdown", "resets_exceeded", "rank_exited", "stage_failed"},
    {
        *("stall", "collective_stall", "host_blacklisted", "workers_reset"),
        *("executor_lost", "task_failed"),
    },
    {"cache_eviction"},
)
_LONGEST_WORDS = 300


def what(event: Event) -> str:
    """Say what happened, on one line."""
    return plain(event.what)[:_LONGEST_WORDS]


def who(event: Event) -> str:
    """Name the ranks and hosts of an event; empty if it names none."""
    ranks = listed("rank", event.ranks) if event.ranks else ""
    hosts = joined([plain(host) for host in event.hosts]) if event.hosts else ""
    return ", ".join(filter(None, [ranks, hosts]))


def since_start_s(event: Event, run: Run) -> float | None:
    """Return seconds since the first log's start, by wall clocks; None if that is unknown."""
    if event.wall_ns is None or run.started_at is None:
        return None
    return event.wall_ns / 1e9 - run.started_at.timestamp()


def when(event: Event, run: Run) -> str:
    """Say how long after the run's start an event was, and how certain that is."""
    seconds = since_start_s(event, run)
    if seconds is None:
        return NOT_KNOWN
    side = "after" if seconds >= 0 else "before"
    at = f"{amount(abs(seconds) * 1e3, 'ms')} {side} the start"
    if not event.uncertainty_ns:
        return at
    return f"{at}, or up to {amount(event.uncertainty_ns / 1e6, 'ms')} later"


def worst(events: Sequence[Event], most: int) -> list[Event]:
    """Choose at most this many events, trouble first, and sort them by time; unknown times last."""
    by_trouble = sorted(range(len(events)), key=lambda at: (_trouble(events[at]), _at(events[at])))
    kept = [events[at] for at in by_trouble[:most]]
    return sorted(kept, key=_at)


def _trouble(event: Event) -> int:
    return next((at for at, kinds in enumerate(_TROUBLE) if event.kind in kinds), len(_TROUBLE))


def _at(event: Event) -> tuple[bool, int]:
    return event.wall_ns is None, event.wall_ns or 0
