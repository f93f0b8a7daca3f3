"""Messages of Horovod and its launcher during the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stallscope.formatting.lists import clipped, counted, ranks_in_words
from stallscope.run import Event

from ..advice import larger_cache
from .finding import Finding
from .records import Records

# Up to so many hosts are named.
_MOST_HOSTS = 5
_LONGEST = 300


def ranks_stalled(records: Records) -> Iterator[Finding]:
    """Horovod's stall inspector warned."""
    stalls = _of_kind(records, "stall")
    shut = _of_kind(records, "stall_shutdown")
    if not stalls and not shut:
        return
    missing = sorted({rank for event in stalls for rank in event.ranks})
    who = ranks_in_words(missing) if missing else "ranks that it does not name"
    # Names of tensors are long, and a few of them tell the place.
    last = f"{stalls[-1].what[:_LONGEST]}. " if stalls else ""
    often = (
        f"{counted(len(stalls), 'warning')} in {_files(stalls)}; the last one: " if stalls else ""
    )
    yield Finding(
        "ranks_stalled",
        "error" if shut else "warning",
        f"Horovod waited for {who}" + (", and gave the job up" if shut else ""),
        f"{often}{last}{'Horovod shut the job down.' if shut else ''}".strip(),
        "Look at what these ranks did then: other steps than the rest, a reduction that only some of "
        "them make, a slow loader, or a process that had died.",
    )


def ranks_exited(records: Records) -> Iterator[Finding]:
    found = _of_kind(records, "rank_exited")
    if found:
        ranks = sorted({rank for event in found for rank in event.ranks})
        yield Finding(
            "ranks_exited",
            "error",
            f"The launcher saw {ranks_in_words(ranks)} fail",
            f"{clipped(found[0].what)}, in {_files(found)}: the first one that fails takes the others "
            "along.",
            "Read the end of that rank's output: it contains the error.",
        )


def hosts_blacklisted(records: Records) -> Iterator[Finding]:
    found = _of_kind(records, "host_blacklisted")
    if found:
        hosts = sorted({host for event in found for host in event.hosts})
        named = ", ".join(clipped(host) for host in hosts[:_MOST_HOSTS])
        named += ", …" if len(hosts) > _MOST_HOSTS else ""
        yield Finding(
            "hosts_blacklisted",
            "warning",
            f"{counted(len(hosts), 'host')} failed and got no more work",
            f"{named}: the elastic job went on without, as {_files(found)} says.",
            "Find out what failed there before the next job gets these hosts.",
        )


def workers_reset(records: Records) -> Iterator[Finding]:
    found = _of_kind(records, "workers_reset")
    over = _of_kind(records, "resets_exceeded")
    if found or over:
        ended = ", until there had been too many" if over else ""
        yield Finding(
            "workers_reset",
            "error" if over else "warning",
            f"The elastic job began anew {counted(len(found), 'time')}{ended}",
            f"{_files(found or over)} says so. Each time workers start, and steps since the last commit "
            "are done again.",
            "Commit states more often than workers fail, and not much oftener: each commit costs time.",
        )


def responses_evicted(records: Records) -> Iterator[Finding]:
    found = _of_kind(records, "cache_eviction")
    if found:
        yield Finding(
            "responses_evicted",
            "warning",
            "Horovod's response cache was too small",
            f"{counted(len(found), 'warning')} in {_files(found)}: tensors that are evicted are "
            "negotiated in full again, through rank 0.",
            str(larger_cache(records.setup, evicts=True)),
        )


def _of_kind(records: Records, kind: str) -> list[Event]:
    return [event for event in records.run.events if event.kind == kind]


def _files(events: Sequence[Event]) -> str:
    names = list(dict.fromkeys(event.where for event in events))
    return clipped(names[0]) if len(names) == 1 else f"{len(names):,} files"


#: In the order in which they are reported.
EVENT_CHECKS: tuple[Callable[[Records], Iterator[Finding]], ...] = (
    ranks_exited,
    ranks_stalled,
    hosts_blacklisted,
    workers_reset,
    responses_evicted,
)
