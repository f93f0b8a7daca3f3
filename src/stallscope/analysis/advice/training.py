"""The set-up of training: shards, rates, validation and checkpoints, one rank or all of them."""

from __future__ import annotations

from .imbalance import SET_EPOCH, sampler_line
from .piece import Advice
from .setup import Setup

# Epochs in which the rate rises to N times its own, as Horovod's callback has it.
_WARM_UP_EPOCHS = 5


def sharding(setup: Setup) -> tuple[Advice, ...]:
    """What makes an epoch of N ranks see every sample once."""
    if setup.framework == "torch":
        return (Advice("Give every rank its part of the data", sampler_line(setup)), SET_EPOCH)
    return (
        Advice(
            "Shard the data, in front of shuffling",
            "dataset = dataset.shard(hvd.size(), hvd.rank())",
            unless="Or, where the dataset repeats and steps_per_epoch is given, divide that by "
            "hvd.size().",
        ),
    )


def scaled_rate(setup: Setup, rate: float) -> tuple[Advice, ...]:
    """N times the rate, and how to get there."""
    scale = Advice(
        "With N times the batch, N times the rate (with a warm-up) is the usual start",
        _scaled_line(setup, rate),
        unless="Not where a rate was looked for on this number of ranks.",
    )
    if setup.framework != "keras" or setup.library != "horovod":
        return (scale,)
    return (
        scale,
        Advice(
            "The warm-up",
            "callbacks.append(hvd.callbacks.LearningRateWarmupCallback(initial_lr="
            f"{rate * setup.ranks:g}, warmup_epochs={_WARM_UP_EPOCHS}))",
        ),
    )


def shared_validation(setup: Setup) -> Advice:
    """Every rank validates its part, and metrics are averaged."""
    what = "Give every rank a shard of the validation data and average the metrics"
    if setup.framework == "keras" and setup.library == "horovod":
        return Advice(
            f"{what}, in front of callbacks that look at them",
            "callbacks.insert(0, hvd.callbacks.MetricAverageCallback())",
            unless="Or validate less often.",
        )
    if setup.framework == "torch" and setup.library == "horovod":
        return Advice(what, 'loss = hvd.allreduce(loss, name="val_loss")', unless=_LESS_OFTEN)
    if setup.library == "ddp":
        return Advice(
            what,
            "torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.SUM); "
            "loss /= torch.distributed.get_world_size()",
            unless=_LESS_OFTEN,
        )
    return Advice(f"{what}, or validate less often")


def checkpoints_on_rank_0(setup: Setup) -> Advice:
    """One rank writes."""
    what = "Write checkpoints on rank 0 only"
    if setup.framework == "torch":
        rank = "torch.distributed.get_rank()" if setup.library == "ddp" else "hvd.rank()"
        return Advice(what, f'if {rank} == 0: torch.save(model.state_dict(), "model.pt")')
    return Advice(
        what,
        'callbacks += [tf.keras.callbacks.ModelCheckpoint("model.keras")] if hvd.rank() == 0 else []',
    )


_LESS_OFTEN = "Or validate less often."


def _scaled_line(setup: Setup, rate: float) -> str:
    if setup.framework == "keras" and setup.library == "horovod":
        return f"optimizer.learning_rate = {rate:g} * hvd.size()"
    if setup.framework == "torch":
        size = "torch.distributed.get_world_size()" if setup.library == "ddp" else "hvd.size()"
        return f'optimizer.param_groups[0]["lr"] = {rate:g} * {size}'
    return ""
