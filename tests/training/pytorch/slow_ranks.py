"""Train with one slow rank, and with timestamps of a device."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from asleep import polling
from case_runner import waiting_seconds
from pytorch.base import (
    BATCH,
    FAULT_SECONDS,
    HIDDEN,
    HOROVOD,
    STEPS,
    Case,
    Net,
    Training,
    accumulating,
    ranked,
)
from torch import nn
from torch.utils.data import DataLoader
from torch_loops import SlowData, fake_device, sleep_in_backward

if HOROVOD:
    import horovod.torch as hvd


@ranked
def on_a_device(case: Case) -> Any:
    """Rank 1 computes longer; all timestamps are those of a device."""
    training = Training(Net(lambda inputs: sleep_in_backward(inputs, FAULT_SECONDS * case.rank)))
    with fake_device() as cuda:
        return {**training.recorded(case), "events": cuda.events}


@ranked
def accumulation_on_a_device(case: Case) -> Any:
    training = Training(passes=3)
    with fake_device():
        return training.recorded(case, accumulating(training, 3))


@ranked
def slow_before_a_broadcast(case: Case) -> Any:
    """Rank 0's input is slow, and DDP broadcasts rank 0's means before every forward pass."""
    training = Training(Net(nn.BatchNorm1d(HIDDEN)))
    data = SlowData(case.data(STEPS * BATCH), BATCH, FAULT_SECONDS * (1 - case.rank))
    with training.logger(case) as log:
        for batch in log.watch(DataLoader(data, BATCH)):
            training.step(batch)
    return training.seen()


@ranked
def waits_for_a_rank(case: Case) -> Any:
    """Rank 0 waits in a reduction for rank 1."""
    ones = torch.ones(1000)

    def reduce() -> None:
        hvd.allreduce(ones, name="waits") if HOROVOD else torch.distributed.all_reduce(ones)

    with polling() if HOROVOD else contextlib.nullcontext():
        return waiting_seconds(reduce, case.rank)


@ranked
def compiled_and_slow(case: Case) -> Any:
    """Forward and backward pass are compiled before recording starts; rank 1 computes longer."""

    @torch.compiler.disable
    def slow(inputs: Any) -> Any:
        time.sleep(FAULT_SECONDS * case.rank)
        return torch.relu(inputs)

    training = Training(Net(slow))
    model, training.model = training.model, torch.compile(training.model, backend="aot_eager")
    training.step(next(iter(case.loader())))
    with training.logger(case) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    training.model = model
    return training.seen()
