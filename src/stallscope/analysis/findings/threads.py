"""Whether the ranks of a host have more threads than it has processors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stallscope.run import Log

from ..result import Finding
from .records import Records
from .words import counted, ranks_in_words

# A few threads more than processors fill the gaps in which others wait.
_TOO_MANY = 1.5


class _Load(NamedTuple):
    """What the ranks of one machine want to compute with, and what they may."""

    ranks: list[int]
    host: str
    threads: int
    processors: int


def threads_oversubscribed(records: Records) -> Iterator[Finding]:
    # Containers on one machine have names of their own, and share its clock and its processors.
    machines: dict[str, list[Log]] = defaultdict(list)
    for log in records.last_log.values():
        machines[log.clock_domain].append(log)
    loads = [load for logs in machines.values() if (load := _load(logs)) is not None]
    over = [load for load in loads if load.threads > _TOO_MANY * load.processors]
    if not over:
        return
    worst = max(over, key=lambda load: load.threads / load.processors)
    also = f" {len(over)} hosts are like this." if len(over) > 1 else ""
    yield Finding(
        "threads_oversubscribed",
        "warning",
        "More threads than processors",
        f"On host {worst.host}, {ranks_in_words(worst.ranks)} compute with "
        f"{counted(worst.threads, 'intra-op thread')} together on "
        f"{counted(worst.processors, 'processor')}, and take them from each other.{also}",
        "Give every rank its share, processors divided by ranks on the host: "
        "tf.config.threading.set_intra_op_parallelism_threads, torch.set_num_threads or "
        "OMP_NUM_THREADS; or start fewer ranks on a host.",
    )


def _load(logs: Sequence[Log]) -> _Load | None:
    """None where it is not known of all of these ranks."""
    threads, allowed, counts = [], [], []
    for log in logs:
        own, count = _number(log.facts.get("cpus_allowed")), _number(log.facts.get("cpu_count"))
        wanted = _threads(log, own, alone=len(logs) == 1)
        if not own or not count or not wanted:
            return None
        threads.append(wanted)
        allowed.append(own)
        counts.append(count)
    # Ranks may be bound to processors of their own: there are at most as many as all of theirs.
    processors = min(max(counts), sum(allowed))
    return _Load(sorted(log.rank for log in logs), logs[0].host, sum(threads), processors)


def _threads(log: Log, allowed: int | None, alone: bool) -> int | None:
    """Intra-op threads; 0 in the facts is one for every processor, which only matters to CPUs."""
    facts = log.facts.get("threads")
    wanted = _number(facts.get("intra_op")) if isinstance(facts, dict) else None
    if wanted != 0:
        return wanted
    devices = log.facts.get("devices")
    only_cpu = isinstance(devices, list) and set(map(str, devices)) == {"CPU"}
    return allowed if only_cpu and not alone else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
