"""Find slow links by the ranks' connections, and what delays mean for clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.run import Log, Run

from .clocks import Clocks

# Connections that send a smaller share of the busiest one's bytes carry messages, not gradients.
_LEAST_SHARE = 0.1
_LEAST_KB = 1_000.0
# Links are slow if their typical rate is less than this share of the others'.
_SLOW_SHARE = 0.5
# The shortest queue, and the smallest share of lost segments, of a congested link.
_LONGER_TRIPS = 3.0
_LEAST_QUEUE_MS = 1.0
_LEAST_LOST = 0.01
_SEGMENT_KB = 1.448

# If more steps than this are outside of what the link explains, the wall clocks are wrong.
_MOST_OUTSIDE = 0.05
_CLOCK_ERROR = "host_clock_error"


@dataclass(frozen=True)
class Link:
    """The traffic of one rank to another host."""

    rank: int
    #: The hosts; an address if no log names its host.
    sender: str
    receiver: str
    sent_mb: float
    #: Quartiles over pieces of time in which there was something to send and the receiver took it.
    mbit_s: tuple[float, float, float]
    #: Quartiles likewise.
    round_trip_ms: tuple[float, float, float]
    #: The share of segments that were sent again.
    retransmitted: float


@dataclass(frozen=True)
class SlowLinks:
    """Links that are slower than the others."""

    links: tuple[Link, ...]
    #: The host at one end of all of them; None if there is none, or either may be meant.
    host: str | None
    #: The median rate of the slow ones, and of the others.
    mbit_s: float
    others_mbit_s: float
    #: The median round trip of the others.
    others_trip_ms: float


def links(run: Run) -> tuple[Link, ...]:
    """Return the links that carry gradients between hosts, by rank."""
    logs = [log for log in run.last_logs.values() if _rows(log)]
    hosts = {str(row["local"]): log.host for log in logs for row in _rows(log)}
    all_links = [link for log in logs for link in _of_log(log, hosts)]
    most = max((link.sent_mb for link in all_links), default=0.0)
    carry = [
        link for link in all_links if link.sent_mb >= max(_LEAST_SHARE * most, _LEAST_KB / 1e3)
    ]
    return tuple(sorted(carry, key=lambda link: (link.rank, link.receiver)))


def slow_links(links: Sequence[Link]) -> SlowLinks | None:
    """Return the links that are certainly slower than the others; None if there are none.

    Bytes queue before a slow link, or are lost there. A late rank acknowledges the last bytes late:
    that also makes the rate small, but causes no queue.
    """
    rates = sorted(links, key=lambda link: link.mbit_s[1])
    splits = ((rates[:count], rates[count:]) for count in range(1, len(rates)))
    certain = [(slow, others) for slow, others in splits if _are_slow(slow, others)]
    if not certain:
        return None
    # Of several splits, the one with the largest gap.
    slow, others = max(certain, key=lambda split: split[1][0].mbit_s[1] / split[0][-1].mbit_s[1])
    trip = median(link.round_trip_ms[1] for link in others)
    return SlowLinks(
        tuple(slow), _common_host(slow, others), _rate(slow), _rate(others), others_trip_ms=trip
    )


def _are_slow(slow: Sequence[Link], others: Sequence[Link]) -> bool:
    """Whether some links are certainly slower than the others, and congested.

    Links that wait for a slow one are slower than the rest as well, so typical rates are compared.
    """
    # The ranges between the quartiles must not overlap.
    apart = max(link.mbit_s[2] for link in slow) < min(link.mbit_s[0] for link in others)
    much = _rate(slow) < _SLOW_SHARE * _rate(others)
    return apart and much and all(_is_congested(link, others) for link in slow)


def _rate(links: Sequence[Link]) -> float:
    return median(link.mbit_s[1] for link in links)


def _is_congested(link: Link, others: Sequence[Link]) -> bool:
    """Whether bytes queue before a link, or are lost there, more than on others."""
    usual = median(peer.round_trip_ms[1] for peer in others)
    # Not the lower quartile: the queue is empty between allreduces.
    queues = link.round_trip_ms[1] > max(_LONGER_TRIPS * usual, _LEAST_QUEUE_MS)
    lost = median(peer.retransmitted for peer in others)
    return queues or link.retransmitted > max(_LONGER_TRIPS * lost, _LEAST_LOST)


def _common_host(slow: Sequence[Link], others: Sequence[Link]) -> str | None:
    """Return the host at one end of all slow links; None without one.

    Of two such hosts, return the one that slow links lead to and from, and no other link touches.
    """
    common = set.intersection(*({link.sender, link.receiver} for link in slow))
    for host in sorted(common):
        sends = any(link.sender == host for link in slow)
        receives = any(link.receiver == host for link in slow)
        fast = [link for link in others if host in (link.sender, link.receiver)]
        if sends and receives and not fast:
            return host
    if len(common) == 1:
        (host,) = common
        return host
    return None


def _rows(log: Log) -> list[Mapping[str, Any]]:
    rows = log.facts.get("connections")
    return [row for row in rows if _is_row(row)] if isinstance(rows, list) else []


def _is_row(row: object) -> bool:
    if not isinstance(row, Mapping):
        return False
    numbers: list[object] = [row.get("sent_kb"), row.get("retransmitted")]
    for name in ("rate_kb_s", "round_trip_us"):
        quartiles = row.get(name)
        numbers += quartiles if isinstance(quartiles, list) and len(quartiles) == 3 else [None]
    return all(isinstance(number, (int, float)) and number >= 0 for number in numbers)


def _of_log(log: Log, hosts: Mapping[str, str]) -> Iterator[Link]:
    for row in _rows(log):
        peer, sent_kb = str(row.get("peer")), float(row["sent_kb"])
        yield Link(
            log.rank,
            log.host,
            hosts.get(peer, peer),
            sent_kb / 1e3,
            _scaled(row["rate_kb_s"], 8 / 1e3),
            _scaled(row["round_trip_us"], 1e-3),
            float(row["retransmitted"]) / max(sent_kb / _SEGMENT_KB, 1.0),
        )


def _scaled(quartiles: Sequence[float], factor: float) -> tuple[float, float, float]:
    low, middle, high = quartiles
    return low * factor, middle * factor, high * factor


# -- Bound the errors of clocks by how far links between hosts may delay completions --------------
#
# Completions of one allreduce differ by about a round trip at most. That looks like an offset, so
# it is part of a clock's error. Over a slow link the last piece of every allreduce arrives late, by
# the same time in every step: on completions alone that looks like a wrong clock. Links do not
# affect wall clocks, so these are used where they lie within what the slow link explains. Their
# error is the kernel's own bound if something synchronises them, and the link's delay otherwise.


@dataclass(frozen=True)
class _WallClocks:
    """The wall clocks of a job's hosts, C of them, in the order of ``Clocks.names``."""

    #: Nanoseconds to subtract from a clock's times to get the reference's, by wall time.
    offset: Ints
    #: The kernel's bound on the error of each offset; infinite where nothing synchronises a clock.
    error: Floats


def corrected_by_links(clocks: Clocks, run: Run, logs: Sequence[Log]) -> Clocks:
    """Correct clocks from completions; leave them unchanged if nothing is known of the links.

    Args:
        clocks: the clocks.
        run: the run.
        logs: the last log of each of the generation's ranks.
    """
    known_links = links(run)
    if not known_links:
        return clocks
    slow = slow_links(known_links)
    if slow is None:
        # Three in four round trips are shorter.
        trip = max(link.round_trip_ms[2] for link in known_links)
        return _delayed(clocks, trip * 1e6)
    delay, walls = _delay_of_link(slow, run), _wall_clocks(run, logs)
    if walls is None:
        return _delayed(clocks, delay, completes_late=True)
    return _on_wall_clocks(clocks, delay, walls)


def _delayed(clocks: Clocks, delay: float, *, completes_late: bool = False) -> Clocks:
    """Return clocks with an error of up to this delay."""
    delays = np.full(len(clocks.names), delay)
    delays[0] = 0.0
    return replace(clocks, link_delay=delays, completes_late=completes_late)


def _on_wall_clocks(clocks: Clocks, delay: float, walls: _WallClocks) -> Clocks:
    """Return clocks on wall time where it is within a delay of the completions."""
    delayed = _delayed(clocks, delay, completes_late=True)
    assert delayed.link_delay is not None
    delays, offset = delayed.link_delay.copy(), clocks.offset.copy(order="F")
    for c in range(1, len(clocks.names)):
        apart = np.abs(clocks.offset[:, c] - walls.offset[c])
        explained = apart <= delay + 2 * clocks.statistical[c]
        if np.mean(~explained) <= _MOST_OUTSIDE:
            offset[:, c] = walls.offset[c]
            delays[c] = min(delay, walls.error[c])
    return replace(delayed, method="wall clocks", offset=offset, link_delay=delays)


def _delay_of_link(slow: SlowLinks, run: Run) -> float:
    """Return how late a piece of an allreduce arrives over slow links, nanoseconds."""
    gradients = run.fact("gradient_bytes")
    # In a ring each rank has one piece per rank.
    piece = gradients / run.size if isinstance(gradients, (int, float)) else 0.0
    return max(
        link.round_trip_ms[2] * 1e6 + piece * 8 * 1e3 / max(link.mbit_s[0], 1e-3)
        for link in slow.links
    )


def _wall_clocks(run: Run, logs: Sequence[Log]) -> _WallClocks | None:
    """Return the hosts' wall clocks; None if a log has none."""
    if not all(log.has_wall_clock for log in logs):
        return None
    by_domain = {log.clock_domain: log for log in reversed(logs)}
    first, *others = (by_domain[name] for name in dict.fromkeys(log.clock_domain for log in logs))
    offset = [first.wall_minus_monotonic - log.wall_minus_monotonic for log in (first, *others)]
    errors = [_error(run, log) for log in (first, *others)]
    summed = [0.0, *(errors[0] + error for error in errors[1:])]
    return _WallClocks(np.array(offset, np.int64), np.array(summed))


def _error(run: Run, log: Log) -> float:
    """Return the kernel's bound on the error of a host's wall clock, nanoseconds."""
    errors = [
        series for series in run.series if series.name == _CLOCK_ERROR and series.node == log.host
    ]
    return max((float(series.value.max()) * 1e6 for series in errors), default=np.inf)
