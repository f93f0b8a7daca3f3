"""Report messages of Horovod and its launcher during the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stallscope.formatting.lists import clipped, counted, ranks_in_words
from stallscope.run import Event

from ..advice import larger_cache
from .finding import Finding
from .records import Records

# At most this many hosts are named.
_MOST_HOSTS = 5
_LONGEST = 300


def ranks_stalled(records: Records) -> Iterator[Finding]:
    """Report warnings of Horovod's stall inspector."""
    stalls = _events_of_kind(records, "stall")
    shut = _events_of_kind(records, "stall_shutdown")
    if not stalls and not shut:
        return
    missing = sorted({rank for event in stalls for rank in event.ranks})
    who = ranks_in_words(missing) if missing else "ranks that it does not name"
    # Names of tensors are long, and the first few are enough.
    last = f"{stalls[-1].what[:_LONGEST]}. " if stalls else ""
    often = (
        f"{counted(len(stalls), 'warning')} in {_files(stalls)}; the last one: " if stalls else ""
    )
    yield Finding(
        "ranks_stalled",
        "error" if shut else "warning",
        f"Horovod waited for {who}" + (" and shut the job down" if shut else ""),
        f"{often}{last}{'Horovod shut the job down.' if shut else ''}".strip(),
        "Check what these ranks did at that time: different steps from the rest, a reduction that only "
        "some ranks make, a slow loader, or a process that had died.",
    )


def ranks_exited(records: Records) -> Iterator[Finding]:
    """Report ranks that failed according to the launcher."""
    found = _events_of_kind(records, "rank_exited")
    if found:
        ranks = sorted({rank for event in found for rank in event.ranks})
        yield Finding(
            "ranks_exited",
            "error",
            f"The launcher reported that {ranks_in_words(ranks)} failed",
            f"{clipped(found[0].what)}, in {_files(found)}: when one rank fails, the launcher stops the "
            "others.",
            "Read the end of that rank's output: it contains the error.",
        )


def hosts_blacklisted(records: Records) -> Iterator[Finding]:
    """Report hosts that the elastic driver excluded after failures."""
    found = _events_of_kind(records, "host_blacklisted")
    if found:
        hosts = sorted({host for event in found for host in event.hosts})
        named = ", ".join(clipped(host) for host in hosts[:_MOST_HOSTS])
        named += ", …" if len(hosts) > _MOST_HOSTS else ""
        yield Finding(
            "hosts_blacklisted",
            "warning",
            f"{counted(len(hosts), 'host')} failed and got no more work",
            f"{named}: the elastic job continued without, as {_files(found)} reports.",
            "Find out what failed there before another job uses these hosts.",
        )


def workers_reset(records: Records) -> Iterator[Finding]:
    """Report restarts of the elastic job's workers."""
    found = _events_of_kind(records, "workers_reset")
    over = _events_of_kind(records, "resets_exceeded")
    if found or over:
        ended = ", up to the limit" if over else ""
        yield Finding(
            "workers_reset",
            "error" if over else "warning",
            f"The elastic job restarted {counted(len(found), 'time')}{ended}",
            f"Reported in {_files(found or over)}. Each time the workers start again and repeat the "
            "steps since the last commit.",
            "Commit states more often than workers fail, but not much more often: each commit costs "
            "time.",
        )


def responses_evicted(records: Records) -> Iterator[Finding]:
    """Report evictions from Horovod's response cache."""
    found = _events_of_kind(records, "cache_eviction")
    if found:
        yield Finding(
            "responses_evicted",
            "warning",
            "Horovod's response cache was too small",
            f"{counted(len(found), 'warning')} in {_files(found)}: evicted tensors are negotiated in "
            "full again, through rank 0.",
            str(larger_cache(records.setup, evicts=True)),
        )


def _events_of_kind(records: Records, kind: str) -> list[Event]:
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
