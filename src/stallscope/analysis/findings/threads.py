"""Whether the ranks of a host have more threads than it has processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stallscope.run import Log

from ..advice import Advice, Setup, machines, number, processors_of
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
    hosts = machines(records.last_log.values()).values()
    loads = [load for logs in hosts if (load := _load(logs)) is not None]
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
        str(_share(records.setup, max(1, worst.processors // len(worst.ranks)))),
    )


def _share(setup: Setup, threads: int) -> Advice:
    """Every rank's share of the processors."""
    line = {
        "keras": f"tf.config.threading.set_intra_op_parallelism_threads({threads})",
        "torch": f"torch.set_num_threads({threads})",
        None: f"OMP_NUM_THREADS={threads}",
    }[setup.framework]
    return Advice(
        "Give every rank its share, processors divided by ranks on the host, in front of all that "
        "computes",
        line,
        unless="Or start fewer ranks on a host.",
    )


def _load(logs: Sequence[Log]) -> _Load | None:
    """None where it is not known of all of these ranks."""
    processors = processors_of(logs)
    threads = [_threads(log, alone=len(logs) == 1) for log in logs]
    wanted = [count for count in threads if count]
    if processors is None or len(wanted) < len(logs):
        return None
    return _Load(sorted(log.rank for log in logs), logs[0].host, sum(wanted), processors)


def _threads(log: Log, alone: bool) -> int | None:
    """Intra-op threads; 0 in the facts is one for every processor, which only matters to CPUs."""
    facts = log.facts.get("threads")
    wanted = number(facts.get("intra_op")) if isinstance(facts, dict) else None
    if wanted != 0:
        return wanted
    devices = log.facts.get("devices")
    only_cpu = isinstance(devices, list) and set(map(str, devices)) == {"CPU"}
    return number(log.facts.get("cpus_allowed")) if only_cpu and not alone else None
