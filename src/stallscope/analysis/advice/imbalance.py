"""Advise on ranks and hosts that make the others wait."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stallscope.formatting.lists import listed
from stallscope.run import Log, Run

from ..settings.setup import Setup, number
from ..stragglers.straggler import Straggler
from .piece import Advice

# Names that need no quoting in a shell.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_MOST_HOSTS = 8


def for_imbalance(run: Run, setup: Setup, stragglers: Sequence[Straggler]) -> Iterator[Advice]:
    """Return advice on the costliest of the stragglers that count as imbalance."""
    counted = [straggler for straggler in stragglers if straggler.counts_as_imbalance]
    if not counted:
        return
    worst = counted[0]
    if worst.work is not None:
        yield from even_work(setup)
    elif not any(straggler.ranks for straggler in counted):
        yield from _without_named_rank(setup)
    else:
        yield from _different_settings(run, worst)
        # While another rank is slower, a slow host may cost nothing: replacing it gains nothing.
        waited_for = [straggler for straggler in counted if straggler.holds_back]
        hosts = tuple(dict.fromkeys(host for straggler in waited_for for host in straggler.hosts))
        pieces = [_replace(setup, hosts)] if hosts else []
        pieces.append(_BY_STAGE[worst.stage])
        yield from pieces if worst.hosts else reversed(pieces)


def even_work(setup: Setup) -> Iterator[Advice]:
    """Return advice to give every rank the same number of samples per step."""
    line = ""
    if setup.framework == "keras" and setup.library == "horovod":
        size = setup.batch_size or 32
        line = f"dataset = dataset.shard(hvd.size(), hvd.rank()).batch({size}, drop_remainder=True)"
    several = setup.framework == "torch" and setup.library is not None
    if several and not setup.distributed_sampler:
        line = sampler_line(setup)
    yield Advice(
        "Give every rank the same number of samples per step: equal batches and equal shards", line
    )
    if several and not setup.set_epoch:
        yield SET_EPOCH


def sampler_line(setup: Setup) -> str:
    """Return the line of a sampler that gives every rank the same number of samples."""
    # Without Horovod the sampler asks the process group.
    ranks = "num_replicas=hvd.size(), rank=hvd.rank(), " if setup.library == "horovod" else ""
    return f"sampler = DistributedSampler(data, {ranks}drop_last=True)"


#: Advice to call a sampler's ``set_epoch``.
SET_EPOCH = Advice(
    "Call this at the start of every epoch; otherwise all epochs have the same order",
    "sampler.set_epoch(epoch)",
)
_BY_STAGE = {
    "input": Advice(
        "Look at this rank's share of the data and the disk or network it reads from: shards of another "
        "size, larger files, a cold cache, fewer loader processes"
    ),
    "compute": Advice(
        "Look at this rank's device and host: throttling, other processes on it, fewer or wrongly "
        "pinned cores (threads, OMP_NUM_THREADS), more work per sample than the others"
    ),
    "other": Advice(
        "Look at what only this rank does between steps: logging, checkpoints, metrics fetched in every "
        "batch, extra callbacks"
    ),
}
# Facts that can make a rank slower, with their titles.
_RANK_FACTS = {
    "cpus_allowed": "available CPU cores",
    "threads.intra_op": "intra-op threads",
    "loader_workers": "loader workers",
}


def _different_settings(run: Run, late: Straggler) -> Iterator[Advice]:
    """Return advice on facts in which a late rank differs from all others."""
    logs = run.last_logs
    if len(late.ranks) != 1 or late.ranks[0] not in logs:
        return
    (rank,) = late.ranks
    differences = []
    for name, title in _RANK_FACTS.items():
        fact = _fact(logs[rank], name)
        others = {_fact(log, name) for peer, log in logs.items() if peer != rank}
        if fact is not None and len(others) == 1 and None not in others and fact not in others:
            differences.append(f"{title}: {fact} there, {others.pop()} on the others")
    if differences:
        yield Advice(f"Start rank {rank} like the others; {'; '.join(differences)}")


def _fact(log: Log, name: str) -> int | None:
    outer, _, inner = name.partition(".")
    value = log.facts.get(outer)
    if inner:
        value = value.get(inner) if isinstance(value, dict) else None
    return number(value)


def _replace(setup: Setup, hosts: Sequence[str]) -> Advice:
    """Return advice to replace hosts, with a command that leaves them out until then."""
    rest = {name: ranks for name, ranks in setup.hosts.items() if name not in hosts}
    what = f"Replace {listed('host', hosts)}"
    plain = all(_PLAIN_NAME.fullmatch(name) for name in rest)
    if setup.library != "horovod" or not rest or not plain or len(rest) > _MOST_HOSTS:
        return Advice(what)
    slots = ",".join(f"{name}:{ranks}" for name, ranks in sorted(rest.items()))
    return Advice(
        f"{what}, or leave it out",
        f"horovodrun -np {sum(rest.values())} -H {slots} python train.py",
        unless="Not if the other hosts are too few.",
    )


def _without_named_rank(setup: Setup) -> Iterator[Advice]:
    """Return advice on imbalance that varies from step to step."""
    yield Advice(
        "Look at what varies from batch to batch on every rank: sequences of different lengths, "
        "garbage collection, other processes on the hosts"
    )
    if setup.framework == "keras" and not setup.has("GroupByWindow"):
        yield Advice(
            "If the length of sequences varies, put sequences of similar length into one batch",
            "dataset = dataset.bucket_by_sequence_length(lambda x, y: tf.shape(x)[0], bucket_boundaries="
            f"[64, 128], bucket_batch_sizes=[{setup.batch_size or 32}] * 3, drop_remainder=True)",
            unless="It evens out steps only if all ranks draw from the same bucket in the same step.",
        )
