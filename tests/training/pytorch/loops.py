"""Train in the ways in which users write loops."""

from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
import time
import warnings
from typing import Any

import torch
from pytorch.base import (
    ALONE,
    BATCH,
    DDP,
    HIDDEN,
    HOROVOD,
    INPUTS,
    RANKS,
    SLOW_SECONDS,
    STEPS,
    Case,
    Net,
    Training,
    accumulating,
    rank,
    ranked,
    samples_of,
)
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from torch_loops import Loop, SlowData, add_loops, sleep_in_backward

from stallscope.torch import gather_logs


class CustomLoop(Loop):
    """A loop in the way of this launch."""

    def __init__(
        self, passes: int = 1, slow_input: float = 0.0, slow_backward: float = 0.0
    ) -> None:
        self.training = Training(
            Net(lambda inputs: sleep_in_backward(torch.relu(inputs), slow_backward)), passes
        )
        data = SlowData(samples_of(rank(), STEPS * BATCH), BATCH, slow_input)
        training = self.training
        super().__init__(training.net, training.model, training.optimizer, DataLoader(data, BATCH))

    def step(self, batch: Any, updates: bool) -> None:
        with contextlib.nullcontext() if updates or not DDP else self.model.no_sync():
            self.training.backward(batch)
        if updates:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def validate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            self.model(torch.rand(1, INPUTS))
        self.model.train()

    def ours(self) -> list[str]:
        return self.training.ours()


add_loops("torch", CustomLoop, RANKS, ALONE)


@ranked
def gathered(case: Case) -> Any:
    """Gather the logs of ranks without a shared folder into rank 0's, twice."""
    training, name = Training(), f"logs-{case.rank}"
    with training.logger(case, name) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen(files=[len(gather_logs(case.logs(name))) for _ in range(2)])


@ranked
def sampled(case: Case) -> Any:
    """Record few steps in full, into small files."""
    options = {"sample_after": 64, "sample_one_in": 4, "max_file_mb": 0.003, "flush_seconds": 0.02}
    return Training().recorded(case, loader=case.loader(160), **options)


@ranked
def accumulation_left_over(case: Case) -> Any:
    """An epoch has 12 iterations, and a step 5: two are left over for the next epoch."""
    training = Training(passes=5)
    return training.recorded(case, accumulating(training, 5))


@ranked
def clipping(case: Case) -> Any:
    """Clip gradients after the reduction, which is no communication."""

    def step(batch: Any) -> None:
        training.optimizer.zero_grad()
        training.backward(batch)
        if HOROVOD:
            training.optimizer.synchronize()
        nn.utils.clip_grad_norm_(training.net.parameters(), 0.1)
        time.sleep(SLOW_SECONDS)
        with training.optimizer.skip_synchronize() if HOROVOD else contextlib.nullcontext():
            training.optimizer.step()

    training = Training()
    return training.recorded(case, step)


@ranked
def scaler(case: Case) -> Any:
    """Scale losses and unscale gradients after the reduction, as with mixed precision."""
    scaling = torch.amp.GradScaler("cpu")

    def step(batch: Any) -> None:
        inputs, labels = batch
        training.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(training.model(inputs), labels)
        scaling.scale(loss).backward()
        if HOROVOD:
            training.optimizer.synchronize()
        scaling.unscale_(training.optimizer)
        nn.utils.clip_grad_norm_(training.net.parameters(), 0.1)
        with training.optimizer.skip_synchronize() if HOROVOD else contextlib.nullcontext():
            scaling.step(training.optimizer)
        scaling.update()

    training = Training()
    return training.recorded(case, step)


@ranked
def unused_parameters(case: Case) -> Any:
    return Training(Net(unused=True), find_unused_parameters=True).recorded(case)


@ranked
def static_graph(case: Case) -> Any:
    return Training(Net(unused=True), static_graph=True).recorded(case)


@ranked
def reentrant_checkpoint(case: Case) -> Any:
    """A layer in the middle has an inner backward pass."""
    inner = nn.Linear(HIDDEN, HIDDEN)
    net = Net(lambda inputs: checkpoint(inner, torch.relu(inputs), use_reentrant=True))
    net.inner = inner
    return Training(net).recorded(case)


@ranked
def all_in_a_reentrant_checkpoint(case: Case) -> Any:
    """All gradients are computed in an inner backward pass."""

    class Checkpointed(Net):
        def forward(self, inputs: Any) -> Any:
            return checkpoint(super().forward, inputs.requires_grad_(), use_reentrant=True)

    return Training(Checkpointed()).recorded(case)


@ranked
def several_backward_passes_in_an_iteration(case: Case) -> Any:
    """Sum the gradients of two halves of a batch."""

    def step(batch: Any) -> None:
        inputs, labels = batch
        training.optimizer.zero_grad()
        with training.model.no_sync() if DDP else contextlib.nullcontext():
            training.backward((inputs[: BATCH // 2], labels[: BATCH // 2]))
        training.backward((inputs[BATCH // 2 :], labels[BATCH // 2 :]))
        training.optimizer.step()

    training = Training(passes=2)
    return training.recorded(case, step)


@ranked
def several_reductions_in_an_iteration(case: Case) -> Any:
    """Train on each batch twice."""

    def step(batch: Any) -> None:
        training.step(batch)
        training.step(batch)

    training = Training()
    return training.recorded(case, step)


@ranked
def synchronized_twice(case: Case) -> Any:
    """Synchronize without ``skip_synchronize``: Horovod reduces again, and warns."""

    def step(batch: Any) -> None:
        training.optimizer.zero_grad()
        training.backward(batch)
        if HOROVOD:
            training.optimizer.synchronize()
        training.optimizer.step()

    training = Training()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return training.recorded(case, step)


@ranked
def left_early(case: Case) -> Any:
    """Leave loops before a batch is used, after it was used, and by an exception."""
    training = Training()
    with training.logger(case) as log:
        for iteration, batch in enumerate(log.watch(case.loader())):
            if iteration == 5:
                break
            training.step(batch)
        for iteration, batch in enumerate(log.watch(case.loader())):
            training.step(batch)
            if iteration == 4:
                break
        with contextlib.suppress(KeyError):
            for iteration, batch in enumerate(log.watch(case.loader())):
                training.step(batch)
                if iteration == 4:
                    raise KeyError("on purpose")
        for batch in log.watch(case.loader(5)):
            training.step(batch)
    return training.seen()


@ranked
def validation_in_an_iteration(case: Case) -> Any:
    """Validate and save the model in the middle of an epoch, after the update."""
    training = Training()
    iterations = itertools.count()
    with training.logger(case) as log, log.epoch(7):
        for batch in log.watch(case.loader()):
            training.step(batch)
            if next(iterations) == 5:
                with log.validation():
                    time.sleep(SLOW_SECONDS)
                with log.checkpoint():
                    time.sleep(SLOW_SECONDS)
    return training.seen()


@ranked
def copies(case: Case) -> Any:
    """Copy, save and pickle a model while it is recorded, and train the copies without a recorder."""
    training = Training()
    with training.logger(case) as log:
        for iteration, batch in enumerate(log.watch(case.loader())):
            training.step(batch)
            if iteration == 3:
                clone = copy.deepcopy(training.net)
                loaded = pickle.loads(pickle.dumps(training.net))
                hooks = pickle.loads(pickle.dumps(training.model._forward_pre_hooks))
                torch.save(training.net, case.folder / f"model-{case.rank}.pt")
                copy.deepcopy(training.optimizer.state_dict())
                for model in (clone, loaded):
                    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
                for hook in hooks.values():
                    hook(clone, batch)
    return training.seen()


@ranked
def compiled(case: Case) -> Any:
    training = Training()
    training.model = torch.compile(training.model, backend="eager")
    with training.logger(case) as log:
        for _ in range(2):
            for batch in log.watch(case.loader()):
                training.step(batch)
    training.model = training.model._orig_mod
    return training.seen()
