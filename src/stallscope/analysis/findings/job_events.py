"""Report messages of Horovod, its launcher, PyTorch and Spark during the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.formatting.lists import capitalised, clipped, counted, ranks_in_words
from stallscope.run import Event

from ..advice.communication_advice import larger_cache
from ..gains.what_if import Advice
from .finding import Finding, Records

# At most this many hosts are named.
_MOST_HOSTS = 5
_LONGEST = 300
# Events between which a stage of a Spark job trains.
_STARTS, _ENDS = "stage_submitted", ("stage_completed", "stage_failed")


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
        (
            Advice(
                "Check what these ranks did at that time",
                detail=": other steps than the rest, a reduction that only some ranks make, a slow "
                "loader, or a dead process",
            ),
        ),
    )


def collectives_incomplete(records: Records) -> Iterator[Finding]:
    """Report collectives in which ranks wait for others, from PyTorch's Flight Recorder."""
    stalls = _events_of_kind(records, "collective_stall")
    if not stalls:
        return
    # The first one is the cause of the others.
    ranks = stalls[0].ranks
    more = f" {counted(len(stalls) - 1, 'other collective')} waited as well." if stalls[1:] else ""
    yield Finding(
        "collectives_incomplete",
        "warning",
        f"PyTorch's ranks waited for {ranks_in_words(ranks)} in a collective",
        f"{capitalised(stalls[0].what[:_LONGEST])}.{more}",
        (
            Advice(
                "Look at the code of these ranks before that collective",
                detail=": a loader, one batch fewer than on the others, a branch that only some ranks "
                "take, collectives in another order, or a dead process",
            ),
        ),
    )


def ranks_exited(records: Records) -> Iterator[Finding]:
    """Report ranks that failed according to the launcher."""
    exits = _events_of_kind(records, "rank_exited")
    if exits:
        ranks = sorted({rank for event in exits for rank in records.run.ranks_of(event)})
        # A process that left no log is known by its number only.
        who = ranks_in_words(ranks) if ranks else "a process"
        yield Finding(
            "ranks_exited",
            "error",
            f"The launcher reported that {who} failed",
            f"{clipped(exits[0].what)}, in {_files(exits)}: when one rank fails, the launcher stops the "
            "others.",
            (Advice("Read the end of that rank's output", detail=": it contains the error"),),
        )


def hosts_blacklisted(records: Records) -> Iterator[Finding]:
    """Report hosts that the elastic driver excluded after failures."""
    exclusions = _events_of_kind(records, "host_blacklisted")
    if exclusions:
        count, named = _hosts(exclusions)
        yield Finding(
            "hosts_blacklisted",
            "warning",
            f"{counted(count, 'host')} failed and got no more work",
            f"{named}: the elastic job continued without, as {_files(exclusions)} reports.",
            (Advice("Find out what failed there before another job uses these hosts"),),
        )


def workers_reset(records: Records) -> Iterator[Finding]:
    """Report restarts of the elastic job's workers."""
    resets = _events_of_kind(records, "workers_reset")
    over = _events_of_kind(records, "resets_exceeded")
    if resets or over:
        ended = ", up to the limit" if over else ""
        yield Finding(
            "workers_reset",
            "error" if over else "warning",
            f"The elastic job restarted {counted(len(resets), 'time')}{ended}",
            f"Reported in {_files(resets or over)}. Each time the workers start again and repeat the "
            "steps since the last commit.",
            (
                Advice(
                    "Commit states more often than workers fail, but not much more often",
                    detail=": each commit costs time",
                ),
            ),
        )


def responses_evicted(records: Records) -> Iterator[Finding]:
    """Report evictions from Horovod's response cache."""
    evictions = _events_of_kind(records, "cache_eviction")
    if evictions:
        yield Finding(
            "responses_evicted",
            "warning",
            "Horovod's response cache was too small",
            f"{counted(len(evictions), 'warning')} in {_files(evictions)}: evicted tensors are "
            "negotiated in full again, through rank 0.",
            (larger_cache(records.setup, evicts=True),),
        )


def executors_lost(records: Records) -> Iterator[Finding]:
    """Report lost executors, and tasks that failed with them, from Spark's event log."""
    lost = _lost_while_training(records.run.events)
    if not lost:
        return
    failed = len(_events_of_kind(records, "task_failed"))
    _, named = _hosts(lost)
    where = f" on {named}" if named else ""
    tasks = f" {counted(failed, 'task')} that trained failed." if failed else ""
    yield Finding(
        "executors_lost",
        "error" if failed else "warning",
        f"Spark lost {counted(len(lost), 'executor')}{where}",
        f"{clipped(lost[0].where)} reports for the first one: {lost[0].what}.{tasks}",
        (
            Advice(
                "Read the end of that executor's stderr",
                note="If its host was preempted, request hosts that are not. If its memory ran out, "
                "raise spark.executor.memoryOverhead, which includes Python's memory. A barrier stage "
                "that loses one task restarts all of them.",
            ),
        ),
    )


def _lost_while_training(events: Sequence[Event]) -> list[Event]:
    """Select executors that were lost between the start and the end of a training stage.

    Executors that stop when the application ends are not lost.
    """
    lost, running = [], 0
    for event in events:
        running += (event.kind == _STARTS) - (event.kind in _ENDS)
        if event.kind == "executor_lost" and running > 0:
            lost.append(event)
    return lost


def _events_of_kind(records: Records, kind: str) -> list[Event]:
    return [event for event in records.run.events if event.kind == kind]


def _hosts(events: Sequence[Event]) -> tuple[int, str]:
    """Return the number of hosts and the names of the first ones."""
    hosts = sorted({host for event in events for host in event.hosts})
    more = ", …" if len(hosts) > _MOST_HOSTS else ""
    return len(hosts), ", ".join(map(clipped, hosts[:_MOST_HOSTS])) + more


def _files(events: Sequence[Event]) -> str:
    names = list(dict.fromkeys(event.where for event in events))
    return clipped(names[0]) if len(names) == 1 else f"{len(names):,} files"
