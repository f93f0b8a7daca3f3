"""Report processes that did not run for seconds, as noticed by their recorders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from stallscope.formatting.lists import capitalised, counted, ranks_in_words
from stallscope.run import Log

from .finding import Finding
from .records import Records

# The most suspensions that are quoted with their times.
_MOST_QUOTED = 3


@dataclass(frozen=True)
class _Suspension:
    """A time in which a rank's process did not run: wall times, nanoseconds."""

    rank: int
    host: str
    since: int
    until: int

    @property
    def seconds(self) -> float:
        return (self.until - self.since) / 1e9

    @property
    def sentence(self) -> str:
        since, until = (datetime.fromtimestamp(ns / 1e9, tz=UTC) for ns in (self.since, self.until))
        return (
            f"rank {self.rank} on {self.host} did not run for {self.seconds:,.0f} s, from "
            f"{since:%Y-%m-%d %H:%M:%S} to {until:%H:%M:%S} UTC"
        )


def processes_suspended(records: Records) -> Iterator[Finding]:
    """Report suspensions of ranks, the longest first."""
    suspensions = [suspension for log in records.run.logs for suspension in _suspensions(log)]
    if not suspensions:
        return
    suspensions.sort(key=lambda suspension: (-suspension.seconds, suspension.rank))
    ranks = sorted({suspension.rank for suspension in suspensions})
    quoted = "; ".join(suspension.sentence for suspension in suspensions[:_MOST_QUOTED])
    more = len(suspensions) - _MOST_QUOTED
    rest = f"; and {counted(more, 'other time')}" if more > 0 else ""
    yield Finding(
        "processes_suspended",
        "warning",
        f"{capitalised(ranks_in_words(ranks))} did not run for a while",
        f"{capitalised(quoted)}{rest}.",
        "A process is suspended by a debugger, by SIGSTOP (Ctrl-Z), by its scheduler, or with its "
        "machine. A library that holds Python's interpreter lock looks the same.",
    )


def _suspensions(log: Log) -> Iterator[_Suspension]:
    """Yield the suspensions of a log; none if its facts are damaged."""
    recorded = log.facts.get("suspended")
    for record in recorded if isinstance(recorded, list) else ():
        since, until = (
            (record.get("since_us"), record.get("until_us"))
            if isinstance(record, Mapping)
            else (0, 0)
        )
        if isinstance(since, int) and isinstance(until, int) and since < until:
            zero = log.anchor + log.wall_minus_monotonic
            yield _Suspension(log.rank, log.host, zero + since * 1000, zero + until * 1000)
