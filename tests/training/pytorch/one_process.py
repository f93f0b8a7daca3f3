"""Train in one process, without Horovod and with it."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import torch
from pytorch.base import (
    BATCH,
    CLASSES,
    HIDDEN,
    INPUTS,
    STEPS,
    Case,
    Net,
    Training,
    alone,
)
from torch import nn
from torch.distributed import checkpoint
from torch.utils.data import DataLoader, IterableDataset, default_collate
from torch_loops import fake_device

from stallscope.collector.recorder.pytorch.batches import READER
from stallscope.collector.recorder.pytorch.pytorch_facts import cuda_device, why_no_timestamps
from stallscope.collector.recorder.pytorch.reductions import Reductions
from stallscope.torch import StepLogger, synthetic_like


class _Stream(IterableDataset):
    """Samples that come once."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        raise StopIteration


@alone
def probed_loaders(case: Case) -> Any:
    """Return why batches of some loaders cannot be fetched ahead, and the memory of some batches."""
    loader = case.loader()
    stateful: Any = case.loader()
    stateful.state_dict = dict
    several = {
        "loader": loader,
        "list": list(loader),
        "iterator": iter(loader),
        "stream": DataLoader(_Stream(), batch_size=None),
        "stateful": stateful,
        "synthetic": synthetic_like(loader),
        "other": Training(),
    }
    ones = torch.ones(8, 4)
    memory = {
        "tensors": (ones, {"label": [torch.ones(2, 4)]}),
        "views of one": (ones[:2], ones[2:]),
        "array in an object": SimpleNamespace(x=ones.numpy()),
        "sparse": ones.to_sparse(),
        "words": ["a", "b"],
    }
    return {
        "refused": {name: READER.why_not(data, False) for name, data in several.items()},
        "named": READER.why_not(several["other"], True),
        "ready": [READER.ready(case.loader(num_workers=workers)) for workers in (0, 3)],
        "bytes": {name: READER.memory(batch).size for name, batch in memory.items()},
    }


@alone
def probed_with_random_numbers(case: Case) -> Any:
    """Train with dropout, on batches that are made in workers, and on those that draw here."""

    def trained(workers: int, log: Any = None) -> str:
        torch.manual_seed(5)
        training = Training(Net(lambda inputs: nn.functional.dropout(torch.relu(inputs))))
        loader = DataLoader(
            case.data(STEPS * BATCH), BATCH, num_workers=workers, collate_fn=_with_noise
        )
        with log(training) if log else contextlib.nullcontext() as watching:
            for _ in range(2):
                for batch in watching.watch(loader) if log else loader:
                    training.step(batch)
        return training.weights()

    def logger(name: str) -> Any:
        options = {"probe_input": 6, "probe_every": 12}
        return lambda training: training.logger(case, name, **options)

    return {
        "weights": {
            str(workers): [trained(workers), trained(workers, logger(f"logs-{workers}"))]
            for workers in (0, 1)
        }
    }


def _with_noise(samples: Any) -> Any:
    inputs, labels = default_collate(samples)
    return inputs + torch.rand(inputs.shape), labels


@alone
def petastorm(case: Case) -> Any:
    """Train with Petastorm's loader, with a worker that is slower than training."""
    from petastorm.pytorch import DataLoader as PetastormLoader
    from row_groups import LABEL, reader, written

    inputs, labels = case.data(STEPS * BATCH).tensors
    url = written(case.folder / "rows", inputs.numpy(), labels.numpy(), rows=BATCH)
    training = Training()
    log = training.logger(case, flush_seconds=0.1)
    with log, reader(url, pause=0.05, num_epochs=1) as rows:
        for batch in log.watch(PetastormLoader(rows, batch_size=BATCH)):
            columns = [batch[f"x{at}"] for at in range(INPUTS)]
            training.step((torch.stack(columns, 1), batch[LABEL]))
    return training.seen()


@alone
def one_process_with_horovod(case: Case) -> Any:
    import horovod.torch

    horovod.torch.init()
    training = Training()
    named = training.net.named_parameters()
    training.optimizer = horovod.torch.DistributedOptimizer(training.optimizer, named)
    result = training.recorded(case)
    horovod.torch.shutdown()
    return result


@alone
def model_without_optimizer(case: Case) -> Any:
    training = Training()
    with StepLogger(case.logs(), model=training.model) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen()


@alone
def nothing_given(case: Case) -> Any:
    training = Training()
    with StepLogger(case.logs(), batch_size=99) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen()


@alone
def closed_and_entered(case: Case) -> Any:
    """Use a logger without ``with``, close it, and then use it with ``with``."""
    training = Training()
    log = training.logger(case)
    for batch in log.watch(case.loader()):
        training.step(batch)
    log.close()
    for batch in log.watch(case.loader()):
        training.step(batch)
    length = len(log.watch(case.loader()))
    with log:
        for batch in log.watch(list(case.loader())):
            training.step(batch)
    return training.seen(length=length)


@alone
def another_optimizer_updates(case: Case) -> Any:
    training, second_training = Training(), Training()
    return {**training.recorded(case, second_training.step), "weights": second_training.weights()}


@alone
def old_torch(case: Case) -> Any:
    """Train without the kinds of hooks that torch has from 2.0 and 2.1 on."""
    tensor_hook = torch.Tensor.register_post_accumulate_grad_hook
    step_hook = torch.optim.Optimizer.register_step_post_hook
    del torch.Tensor.register_post_accumulate_grad_hook
    del torch.optim.Optimizer.register_step_post_hook
    try:
        return Training().recorded(case)
    finally:
        torch.Tensor.register_post_accumulate_grad_hook = tensor_hook
        torch.optim.Optimizer.register_step_post_hook = step_hook


@alone
def bad_arguments(case: Case) -> Any:
    raised = []
    for arguments in (
        {"log_dir": 3},
        {"log_dir": "x", "optimizer": Net()},
        {"log_dir": "x", "model": "resnet50"},
        {"log_dir": "x", "batch_size": 0},
        {"log_dir": "x", "flush_seconds": 0},
    ):
        try:
            StepLogger(**arguments)
        except (TypeError, ValueError) as error:
            raised.append([type(error).__name__, str(error).split(",")[0]])
    try:
        synthetic_like([])
    except ValueError as error:
        raised.append([type(error).__name__, str(error)])
    return {"weights": "", "ours": [], "raised": raised}


@alone
def one_process_on_a_device(case: Case) -> Any:
    with fake_device():
        return Training().recorded(case)


@alone
def few_hooks_on_a_device(case: Case) -> Any:
    training, hooks = Training(), []
    with fake_device(), training.logger(case) as log:
        for batch in log.watch(case.loader(20)):
            training.step(batch)
            hooks.append(len(training.ours()))
    return training.seen(hooks=hooks)


@alone
def fewer_gradients_on_a_device(case: Case) -> Any:
    """Every other iteration has gradients that the next one lacks."""
    training = Training(Net(unused=True))
    iterations = itertools.count()

    def step(batch: Any) -> None:
        inputs, labels = batch
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(training.model(inputs), labels)
        if next(iterations) % 2:
            loss = loss + training.net.unused(torch.ones(3)).sum()
        loss.backward()
        training.optimizer.step()

    with fake_device():
        return training.recorded(case, step)


@alone
def devices_of_parameters(case: Case) -> Any:
    """Ask the recorder about devices that this machine does not have."""
    places = {
        "one": ["cuda:1", "cuda:1"],
        "two": ["cuda:0", "cuda:1"],
        "mixed": ["cpu", "cuda:0"],
        "none": ["cpu", "cpu"],
    }
    results = {}
    for name, devices in places.items():
        parameters = [SimpleNamespace(device=torch.device(device)) for device in devices]
        results[name] = [cuda_device(parameters), why_no_timestamps(Reductions(), parameters, True)]
    return {"weights": "", "ours": [], "found": results}


@alone
def other_device(case: Case) -> Any:
    """Train on a device that is neither CPU nor CUDA: ``meta``, which computes nothing."""
    net = Net().to("meta")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with StepLogger(case.logs(), optimizer=optimizer) as log:
        for iteration, (inputs, _) in enumerate(log.watch(case.loader())):
            net(inputs.to("meta")).sum().backward()
            if iteration % 2:
                optimizer.step()
                optimizer.zero_grad()
    return {"weights": "", "ours": []}


#: The lengths of the batches of ``lengths_that_change``.
LENGTHS = [8, 8, 8, 12, 12, 8, 20, 20, 8, 12, 8, 8]


@alone
def lengths_that_change(case: Case) -> Any:
    """Train on sequences of several lengths with a model that is compiled for each of them."""
    net = nn.Sequential(nn.Linear(1, HIDDEN), nn.Linear(HIDDEN, CLASSES))
    compiled: Any = torch.compile(net, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batches = [torch.rand(BATCH, length, 1) for length in LENGTHS]
    with StepLogger(case.logs(), optimizer=optimizer) as log:
        for batch in log.watch(batches):
            optimizer.zero_grad()
            compiled(batch).square().mean().backward()
            optimizer.step()
    return {"ours": []}


@alone
def evaluates_beside_training(case: Case) -> Any:
    """Evaluate on another thread, which also writes a checkpoint, and in a pause between steps."""
    training = Training()

    def evaluate(log: Any, steps: threading.Barrier) -> None:
        with log.validation():
            steps.wait()
            steps.wait()
        with log.checkpoint():
            time.sleep(0.002)

    with training.logger(case) as log:
        steps, thread = threading.Barrier(2), threading.Thread()
        for step, batch in enumerate(log.watch(case.loader())):
            if step == 2:
                thread = threading.Thread(target=evaluate, args=(log, steps))
                thread.start()
                steps.wait()
            training.step(batch)
            if step == 5:
                steps.wait()
                thread.join()
            elif step == 8:
                with log.validation():
                    time.sleep(0.002)
    return training.seen()


#: The steps of ``saves_of_all_kinds`` in which training saves.
SAVES_HERE, SAVES_ON_A_THREAD, SAVES_ASYNCHRONOUSLY, SAVES_IN_A_PAUSE = 2, 4, 6, 8


@alone
def saves_of_all_kinds(case: Case) -> Any:
    """Save within a step, on another thread, asynchronously, and in a pause between steps."""
    state, path = {"weights": torch.zeros(10_000_000)}, str(case.folder / "weights.pt")
    training = Training()
    with training.logger(case) as log:
        for step, batch in enumerate(log.watch(case.loader())):
            training.step(batch)
            if step == SAVES_HERE:
                torch.save(state, path)
            elif step == SAVES_ON_A_THREAD:
                thread = threading.Thread(target=torch.save, args=(state, path))
                thread.start()
                thread.join()
            elif step == SAVES_ASYNCHRONOUSLY:
                folder = str(case.folder / "checkpoint")
                checkpoint.async_save(state, checkpoint_id=folder, no_dist=True).result()
            elif step == SAVES_IN_A_PAUSE:
                with log.checkpoint():
                    torch.save(state, path)
    return training.seen()


#: Loops of ``another_thread_computes`` until there are enough waits, and a line that had the lock.
MOST_LOOPS, WAITS = 20_000, 20


@alone
def another_thread_computes(case: Case) -> Any:
    """Train while another Python thread always wants the lock."""
    stop, training = threading.Event(), Training()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1_000))

    feeder = threading.Thread(target=compute, name="feeder")
    with training.logger(case) as log:
        feeder.start()
        for _ in range(MOST_LOOPS):
            for batch in log.watch(case.loader()):
                training.step(batch)
            waits = log._loop._session._interruptions._lock_waits
            if waits is not None and waits._waits >= WAITS and waits._had_it:
                break
        stop.set()
        feeder.join()
    return {"ours": []}
