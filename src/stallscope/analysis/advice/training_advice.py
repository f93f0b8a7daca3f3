"""Advise on slow ranks and on the training setup: shards, learning rates, validation, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from stallscope.formatting.lists import listed
from stallscope.run import Log, Run

from ..gains.what_if import REPLACE, Advice
from ..setup import AVERAGES, Setup, number
from ..stragglers.lateness import Straggler

_BROADCASTS = "horovod.BroadcastGlobalVariablesCallback"
# Epochs over which the rate rises to N times its value; the default of Horovod's callback.
_WARM_UP_EPOCHS = 5

# Names that need no quoting in a shell.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_MOST_HOSTS = 8


def sharding(setup: Setup) -> Iterator[Advice]:
    """Return advice so that an epoch of N ranks sees every sample once."""
    shared = setup.distributed_sampler if setup.framework == "torch" else setup.has("Shard")
    if setup.framework == "torch":
        if not shared:
            yield Advice("Give every rank its part of the data", sampler_line(setup))
        if not setup.set_epoch:
            yield SET_EPOCH
    elif not shared:
        yield Advice(
            "Shard the data before shuffling",
            "dataset = dataset.shard(hvd.size(), hvd.rank())",
            unless="Or, if the dataset repeats and steps_per_epoch is given, divide that by "
            "hvd.size().",
        )
    if shared:
        yield Advice(
            "if it repeats, divide the steps of an epoch by the number of ranks",
            reason="Every rank has its part of the data already:",
        )


def scaled_rate(setup: Setup, rate: float) -> Iterator[Advice]:
    """Return advice to scale the learning rate by the number of ranks, with a warm-up."""
    line = ""
    keras = setup.framework == "keras" and setup.library == "horovod"
    if keras:
        line = f"optimizer.learning_rate = {rate:g} * hvd.size()"
    elif setup.framework == "torch":
        size = "torch.distributed.get_world_size()" if setup.library == "ddp" else "hvd.size()"
        line = f'optimizer.param_groups[0]["lr"] = {rate:g} * {size}'
    yield Advice(
        "With N times the batch, start with N times the rate and a warm-up",
        line,
        unless="Not if the rate was tuned on this number of ranks.",
    )
    if keras and "horovod.LearningRateWarmupCallback" not in setup.callbacks:
        yield Advice(
            "Add the warm-up",
            "callbacks.append(hvd.callbacks.LearningRateWarmupCallback(initial_lr="
            f"{rate * setup.ranks:g}, warmup_epochs={_WARM_UP_EPOCHS}))",
        )


def broadcast_once(setup: Setup) -> Advice:
    """Return advice to start all ranks with rank 0's model."""
    action, detail = "Start with the same weights on all ranks", ": broadcast rank 0's once"
    line = "callbacks.insert(0, hvd.callbacks.BroadcastGlobalVariablesCallback(0))"
    if setup.library == "ddp":
        detail += "; DistributedDataParallel does it unless init_sync is False"
        line = "[torch.distributed.broadcast(one.data, src=0) for one in model.parameters()]"
    elif setup.framework == "torch":
        detail += ", before the first epoch"
        line = (
            "hvd.broadcast_parameters(model.state_dict(), root_rank=0); "
            "hvd.broadcast_optimizer_state(optimizer, root_rank=0)"
        )
    elif _BROADCASTS in setup.callbacks:
        line = detail = ""
        action = (
            "Find what sets weights on some ranks after BroadcastGlobalVariablesCallback, which all "
            "ranks have"
        )
    return Advice(action, line, detail=detail, unless="Not if ranks should train separate models.")


#: Advice to use one broadcast callback for all fits of a job.
ONE_BROADCAST = Advice(
    "Train all epochs in one fit, or create this callback once and pass it to every fit",
    "broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)",
    detail=": it broadcasts only once",
    unless="Not if weights are loaded on rank 0 between fits.",
)


def averaged_metrics(setup: Setup) -> Advice:
    """Return advice so that learning rates and early stopping use the metrics of all ranks."""
    what = "Average metrics over the ranks before anything uses them"
    unless = "Not if all ranks have the same values anyway, such as metrics reduced in the model."
    if setup.framework == "keras" and setup.library == "horovod":
        if setup.averages_first:
            return Advice(
                "Find what uses a metric, or sets learning rates, on some ranks only",
                detail=": MetricAverageCallback comes first already",
            )
        if AVERAGES in setup.callbacks:
            return Advice("Move MetricAverageCallback before all callbacks that use a metric")
        what += ", as the first of the callbacks"
    elif setup.framework == "torch" and setup.library is not None:
        what += ", such as scheduler.step(loss)"
    return Advice(what, _averaging_line(setup), unless=unless)


def shuffled_anew(setup: Setup, shuffles: bool) -> Advice:
    """Return advice for another order in every epoch.

    Args:
        setup: the run's setup.
        shuffles: whether samples are shuffled already, in the same way each time.
    """
    if setup.framework == "torch" and shuffles:
        return SET_EPOCH
    if setup.framework == "torch" and setup.library is None:
        return Advice("Shuffle", "loader = DataLoader(data, shuffle=True)")
    if setup.framework == "torch":
        line = f"{sampler_line(setup)}; sampler.set_epoch(epoch)"
        return Advice("Shuffle with a sampler that gets the epoch", line)
    if shuffles:
        return Advice(
            "Shuffle again in every epoch, after the cache",
            "dataset = dataset.cache().shuffle(10_000, reshuffle_each_iteration=True)",
        )
    return Advice(
        "Shuffle before batching",
        "dataset = dataset.shuffle(10_000)",
        detail="; for arrays use fit(shuffle=True)",
    )


def dense_gradients(setup: Setup, shape: Sequence[int]) -> Advice:
    """Return advice to reduce gradients of embeddings as a whole.

    Args:
        setup: the run's setup.
        shape: the shape of the embedding.
    """
    line = setup.optimizer_line("sparse_as_dense=True")
    if setup.library == "ddp":
        line = f"embedding = torch.nn.Embedding({shape[0]}, {shape[1]}, sparse=False)"
    return Advice(
        "Reduce gradients of embeddings as a whole",
        line,
        unless="Not for large vocabularies if a step looks up few rows: reducing all moves more.",
    )


def _averaging_line(setup: Setup) -> str:
    """Return the line that averages metrics over the ranks; empty if unknown."""
    if setup.framework == "keras" and setup.library == "horovod":
        return "callbacks.insert(0, hvd.callbacks.MetricAverageCallback())"
    if setup.framework != "torch" or setup.library is None:
        return ""
    if setup.library == "ddp":
        return (
            "torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.SUM); "
            "loss /= torch.distributed.get_world_size()"
        )
    return 'loss = hvd.allreduce(loss, name="val_loss")'


def shared_validation(setup: Setup) -> Advice:
    """Return advice to validate one shard per rank and average the metrics."""
    # No fact shows whether the validation data is a shard.
    what = "Unless it has one already, give every rank a shard of the validation data"
    if AVERAGES in setup.callbacks:
        return Advice(f"{what}, or validate less often")
    line = _averaging_line(setup)
    what += " and average the metrics"
    if not line:
        return Advice(f"{what}, or validate less often")
    what += ", before callbacks that use them" if setup.framework == "keras" else ""
    return Advice(what, line, unless="Or validate less often.")


def shorter_solo_work(setup: Setup, kinds: Collection[str]) -> Iterator[Advice]:
    """Return advice that shortens work of one rank for which the others wait.

    Args:
        setup: the run's setup.
        kinds: the kinds of this work, ``validation`` or ``checkpoint``.
    """
    if "validation" in kinds:
        yield shared_validation(setup)
    if "checkpoint" in kinds:
        yield Advice("Write checkpoints less often or in the background")


def checkpoints_on_rank_0(setup: Setup) -> Advice:
    """Return advice to write checkpoints on one rank."""
    line = 'callbacks += [tf.keras.callbacks.ModelCheckpoint("model.keras")] if hvd.rank() == 0 else []'
    if setup.framework == "torch":
        rank = "torch.distributed.get_rank()" if setup.library == "ddp" else "hvd.rank()"
        line = f'if {rank} == 0: torch.save(model.state_dict(), "model.pt")'
    return Advice("Write checkpoints on rank 0 only", line)


# -- Advise on ranks and hosts that make the others wait ------------------------------------------


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
        of_host = run.times_host_work and worst.stage == "compute"
        pieces.append(HOST_CODE if of_host else _BY_STAGE[worst.stage])
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
        "Give every rank the same number of samples per step",
        line,
        detail=": equal batches and equal shards",
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
    "Call this at the start of every epoch",
    "sampler.set_epoch(epoch)",
    detail="; otherwise all epochs have the same order",
)


_BY_STAGE = {
    "input": Advice(
        "Look at this rank's share of the data and the disk or network it reads from",
        detail=": shards of another size, larger files, a cold cache, fewer loader processes",
    ),
    "compute": Advice(
        "Look at this rank's device and host",
        detail=": throttling, other processes on it, fewer or wrongly pinned cores (threads, "
        "OMP_NUM_THREADS), more work per sample than the others",
    ),
    "other": Advice(
        "Look at what only this rank does between steps",
        detail=": logging, checkpoints, metrics fetched in every batch, extra callbacks",
    ),
}


#: Advice on slow compute that is the host's.
HOST_CODE = Advice(
    "Look at what this rank's program does between the batch and the call of the step",
    detail=": transforms and copies of the batch, logging, other processes on its cores",
)

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
        yield Advice(f"Start rank {rank} like the others", detail=f"; {'; '.join(differences)}")


def _fact(log: Log, name: str) -> int | None:
    outer, _, inner = name.partition(".")
    value = log.facts.get(outer)
    if inner:
        value = value.get(inner) if isinstance(value, dict) else None
    return number(value)


def _replace(setup: Setup, hosts: Sequence[str]) -> Advice:
    """Return advice to replace hosts, with a command that leaves them out until then."""
    rest = {name: ranks for name, ranks in setup.hosts.items() if name not in hosts}
    what = f"{REPLACE}{listed('host', hosts)}"
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
        "Look at what varies from batch to batch on every rank",
        detail=": sequences of different lengths, garbage collection, other processes on the hosts",
    )
    if setup.framework == "keras" and not setup.has("GroupByWindow"):
        yield Advice(
            "If the length of sequences varies, put sequences of similar length into one batch",
            "dataset = dataset.bucket_by_sequence_length(lambda x, y: tf.shape(x)[0], bucket_boundaries="
            f"[64, 128], bucket_batch_sizes=[{setup.batch_size or 32}] * 3, drop_remainder=True)",
            unless="It evens out steps only if all ranks draw from the same bucket in the same step.",
        )
