"""Report messages of Horovod, launchers, PyTorch, schedulers and Spark during the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from stallscope.formatting.lists import capitalised, clipped, counted, joined, ranks_in_words
from stallscope.run import Event, Run

from ..advice.communication_advice import larger_cache
from ..gains.what_if import Advice
from .finding import Finding, Records, Severity

# At most this many hosts are named.
_MOST_HOSTS = 5
_LONGEST = 300
# Messages of one kind that are quoted.
_MOST_SENTENCES = 3
# Events between which a stage of a Spark job trains.
_STARTS, _ENDS = "stage_submitted", ("stage_completed", "stage_failed")


@dataclass(frozen=True)
class Failure:
    """A kind of event that ends jobs."""

    #: Its title, before the ranks that it is about.
    title: str
    advice: str
    severity: Severity = "error"

    @property
    def is_fault(self) -> bool:
        """Whether the job failed by itself; a scheduler or a user may have ended it."""
        return self.severity == "error"


_RESUMED = " Steps followed."
_RESUME = "Start the job again from its last checkpoint"
_FIRST_FAILURE = "Look for the rank that ended first: the others report it"
#: Events that end jobs, the likeliest causes of the others first.
FAILURES = {
    "out_of_memory": Failure(
        "Memory ran out", "Use smaller batches, fewer loader workers, or more memory for each rank"
    ),
    "gpu_error": Failure(
        "A GPU failed", "Check the GPUs of that host before another job uses them"
    ),
    "loader_died": Failure(
        "A worker of the loader died",
        "Give the job more memory and shared memory (/dev/shm), or use fewer loader workers",
    ),
    "loss_not_finite": Failure(
        "The loss was not a finite number",
        "Look at the batches and the learning rate before that step",
    ),
    "crashed": Failure("A process crashed", "Read the stack in the output of that process"),
    "node_failed": Failure("A node failed", f"{_RESUME}, without that node"),
    "worker_died": Failure("A worker died", "Read the end of that worker's output"),
    "time_limit": Failure(
        "The job reached its time limit",
        "Request more time, or write a checkpoint before the limit",
        "warning",
    ),
    "preempted": Failure("The job was preempted", _RESUME, "warning"),
    "rank_exited": Failure("A rank failed", "Read the end of that rank's output"),
    "barrier_timeout": Failure(
        "Ranks did not reach a barrier", "Read the end of the output of these ranks"
    ),
    "collective_timeout": Failure(
        "A collective timed out",
        "Read the end of the output of the ranks that the others wait for, and check their hosts",
    ),
    "network_error": Failure("The network between ranks failed", _FIRST_FAILURE),
    "peer_failed": Failure("A rank failed", _FIRST_FAILURE),
    "connection_lost": Failure("A rank closed its connections", _FIRST_FAILURE),
    "terminated": Failure("The job was asked to end", _RESUME, "warning"),
    "cancelled": Failure("The job was cancelled", _RESUME, "info"),
    "interrupted": Failure("A user interrupted the job", _RESUME, "info"),
}
#: Events with findings of their own, which have more words.
REPORTED_APART = ("rank_exited", "collective_timeout")


def job_failed(records: Records) -> Iterator[Finding]:
    """Report failures and ends of the job: memory, devices, limits, signals."""
    for kind, failure in FAILURES.items():
        events = _events_of_kind(records, kind)
        if not events or kind in REPORTED_APART:
            continue
        ranks = sorted({rank for event in events for rank in records.run.ranks_of(event)})
        resumed = all(event.followed for event in events)
        sentences = "; ".join(event.what[:_LONGEST] for event in events[:_MOST_SENTENCES])
        yield Finding(
            kind,
            "warning" if resumed and failure.is_fault else failure.severity,
            failure.title + (f" on {ranks_in_words(ranks)}" if ranks else ""),
            f"{capitalised(sentences)}, in {_files(events)}." + (_RESUMED if resumed else ""),
            (Advice(failure.advice),),
        )


@dataclass(frozen=True)
class TimedOut:
    """A collective that timed out."""

    #: The ranks that report it, and those that they may wait for.
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    #: Sentences on what is known of both.
    evidence: str


def timed_out(run: Run, events: Sequence[Event]) -> TimedOut:
    """Tell which ranks wait in a collective that timed out, and which of them are missing there.

    Args:
        run: the run.
        events: the timeouts, at least one.
    """
    first: dict[int, str] = {}
    for event in events:
        for rank in event.ranks:
            first.setdefault(rank, event.what.partition(" of ")[0])
    places: dict[str, list[int]] = {}
    for rank in sorted(first):
        places.setdefault(first[rank], []).append(rank)
    most = max(places.values(), key=len, default=[])
    elsewhere = [rank for rank in first if rank not in most]
    silent = [rank for rank in range(run.known_size or 0) if rank not in first]
    sentences = [f"{capitalised(events[0].what[:_LONGEST])}{_since(events[0])}."]
    missing: list[int] = []
    if elsewhere and len(elsewhere) < len(most):
        missing = sorted(elsewhere)
        where = [f"{ranks_in_words(ranks)} in {place}" for place, ranks in places.items()]
        sentences.append(f"Ranks wait in different collectives: {joined(where)}.")
    elif first and silent and len(silent) < len(first):
        missing = silent
        sentences.append(
            f"{capitalised(ranks_in_words(silent))} reported no timeout: the others may wait for "
            f"{'it' if len(silent) == 1 else 'them'}."
        )
    elif first and not silent and run.known_size is not None and not run.size_is_least:
        sentences.append(
            "All ranks report it: none is missing, so the network or the collective hangs."
        )
    return TimedOut(tuple(sorted({*first} - {*missing})), tuple(missing), " ".join(sentences))


def _since(event: Event) -> str:
    """Say since when ranks had waited, by the clock of the message."""
    lasted = f" after {event.waited_ns / 1e9:,.0f} s" if event.waited_ns else ""
    ns = event.local_ns if event.wall_ns is None else event.wall_ns
    if ns is None:
        return lasted
    began = datetime.fromtimestamp((ns - event.waited_ns) / 1e9, UTC)
    zone = "in the log's time" if event.wall_ns is None else "UTC"
    return f"{lasted}, since {began:%d %b %H:%M:%S} {zone}"


def collectives_timed_out(records: Records) -> Iterator[Finding]:
    """Report collectives that timed out, from the watchdog of PyTorch or from gloo."""
    events = _events_of_kind(records, "collective_timeout")
    if not events:
        return
    timeout = timed_out(records.run, events)
    who = f" on {ranks_in_words(timeout.waiting)}" if timeout.waiting else ""
    resumed = all(event.followed for event in events)
    yield Finding(
        "collectives_timed_out",
        "warning" if resumed else "error",
        f"{FAILURES['collective_timeout'].title}{who}",
        f"{timeout.evidence} Reported in {_files(events)}.{_RESUMED if resumed else ''}",
        (Advice(FAILURES["collective_timeout"].advice),),
    )


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
        resumed = all(event.followed for event in exits)
        yield Finding(
            "ranks_exited",
            "warning" if resumed else "error",
            f"The launcher reported that {who} failed",
            f"{clipped(exits[0].what)}, in {_files(exits)}"
            + (
                f".{_RESUMED}"
                if resumed
                else ": when one rank fails, the launcher stops the others."
            ),
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
