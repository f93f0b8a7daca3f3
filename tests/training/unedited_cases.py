"""Trainings that know nothing of Stallscope: ``python unedited_cases.py CASE``.

Each prints a digest of its weights at the end.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BATCH = 16
BATCHES = int(os.environ.get("CASE_BATCHES", "12"))
EPOCHS = int(os.environ.get("CASE_EPOCHS", "2"))


def printed_weights(weights: Iterable[Any]) -> None:
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.tobytes())
    print("weights", digest.hexdigest()[:16], flush=True)


def torch_parts(seed: int = 1) -> tuple[Any, Any, Any]:
    """Return a module of torch, a data set and a model."""
    import torch
    from torch.utils.data import TensorDataset

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    # The last batch of an epoch is smaller.
    samples = BATCH * BATCHES - 3
    data = TensorDataset(torch.rand(samples, 8), torch.randint(4, (samples,)))
    return torch, data, torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))


def train_batch(torch: Any, model: Any, optimizer: Any, batch: Any) -> None:
    inputs, labels = batch
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def finish(model: Any) -> None:
    printed_weights(weight.detach().numpy() for weight in model.parameters())


def loop(new_loaders: bool = False) -> None:
    torch, data, model = torch_parts()
    optimizer = torch.optim.Adam(model.parameters())
    held_out = torch.utils.data.DataLoader(data, BATCH)
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True)
    for _ in range(EPOCHS):
        if new_loaders:
            loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=1)
        for batch in loader:
            train_batch(torch, model, optimizer, batch)
        with torch.no_grad():
            for inputs, _ in held_out:
                model(inputs)
    finish(model)


def loop_in_eval(trains_so: bool = False) -> None:
    """Evaluate other data with gradients, and leave ``eval()`` after the first batch of the next loop.

    Args:
        trains_so: whether the model also trains in ``eval()``.
    """
    torch, data, model = torch_parts()
    _, others, _ = torch_parts(seed=2)
    optimizer = torch.optim.Adam(model.parameters())
    loader, held_out = (torch.utils.data.DataLoader(part, BATCH) for part in (data, others))
    for _ in range(EPOCHS):
        for batch in loader:
            model.train(not trains_so)
            train_batch(torch, model, optimizer, batch)
        model.eval()
        for inputs, _ in held_out:
            model(inputs)
    finish(model)


def loop_that_trains_in_eval() -> None:
    loop_in_eval(trains_so=True)


def loop_that_exits() -> None:
    loop()
    sys.exit(3)


def loop_that_raises() -> None:
    loop()
    raise ValueError("broken")


def new_loaders() -> None:
    loop(new_loaders=True)


def two_optimizers() -> None:
    torch, data, model = torch_parts()
    critic = torch.nn.Linear(8, 4)
    optimizers = [torch.optim.SGD(part.parameters(), 0.1) for part in (model, critic)]
    for _ in range(EPOCHS):
        for batch in torch.utils.data.DataLoader(data, BATCH):
            for part, optimizer in zip((model, critic), optimizers, strict=True):
                train_batch(torch, part, optimizer, batch)
    finish(model)


def with_its_own_logger() -> None:
    torch, data, model = torch_parts()
    from stallscope.torch import StepLogger

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with StepLogger(os.environ["STALLSCOPE_TO"], optimizer=optimizer) as log:
        for _ in range(EPOCHS):
            for batch in log.watch(torch.utils.data.DataLoader(data, BATCH)):
                train_batch(torch, model, optimizer, batch)
    finish(model)


#: Like timm's loader, which needs torchvision: that is in no environment of tests.
PREFETCHING = """
class PrefetchLoader:
    def __init__(self, loader):
        self.loader = loader

    @property
    def dataset(self):
        return self.loader.dataset

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        first = True
        for following in self.loader:
            if not first:
                yield batch
            first, batch = False, following
        yield batch
"""


def loader_that_takes_a_batch_ahead() -> None:
    folder = Path(os.environ["CASE_DIR"]) / "timm" / "data"
    folder.mkdir(parents=True)
    (folder / "loader.py").write_text(PREFETCHING)
    sys.path.insert(0, os.environ["CASE_DIR"])
    from timm.data.loader import PrefetchLoader  # type: ignore[import-not-found]

    torch, data, model = torch_parts()
    optimizer = torch.optim.Adam(model.parameters())
    loader = PrefetchLoader(torch.utils.data.DataLoader(data, BATCH))
    for _ in range(EPOCHS):
        for batch in loader:
            train_batch(torch, model, optimizer, batch)
    finish(model)


def no_loader() -> None:
    torch, data, model = torch_parts()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for at in range(EPOCHS * BATCHES):
        train_batch(torch, model, optimizer, data[at : at + BATCH])
    finish(model)


def ddp(rank: int = -1, size: int = 2, port: int = 0) -> None:
    torch, data, model = torch_parts()
    from process_group import end_process_group

    where = {} if rank < 0 else {"init_method": f"tcp://127.0.0.1:{port}", "rank": rank}
    torch.distributed.init_process_group("gloo", world_size=size if where else -1, **where)
    model = torch.nn.parallel.DistributedDataParallel(model)
    train_rank(torch, data, model)
    if torch.distributed.get_rank() == 0:
        finish(model)
    end_process_group()


def ddp_of_slurm() -> None:
    ddp(int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"]), 29500)


def fsdp_2() -> None:
    torch, data, model = torch_parts()
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo")
    for layer in model:
        fully_shard(layer)
    train_rank(torch, data, fully_shard(model))
    model.reshard()
    finish_sharded(torch, [weight.full_tensor() for weight in model.parameters()])


def fsdp_1() -> None:
    torch, data, model = torch_parts()
    from torch.distributed.fsdp import FullyShardedDataParallel as Sharded

    torch.distributed.init_process_group("gloo")
    model = Sharded(model, device_id=torch.device("cpu"))
    train_rank(torch, data, model)
    with Sharded.summon_full_params(model):
        weights = [weight.clone() for weight in model.parameters()]
    finish_sharded(torch, weights)


def train_rank(torch: Any, data: Any, model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sampler = torch.utils.data.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, BATCH // 2, sampler=sampler)
    for _ in range(EPOCHS):
        for batch in loader:
            train_batch(torch, model, optimizer, batch)


def finish_sharded(torch: Any, weights: Iterable[Any]) -> None:
    from process_group import end_process_group

    if torch.distributed.get_rank() == 0:
        printed_weights(weight.detach().numpy() for weight in weights)
    end_process_group()


def spawned() -> None:
    import socket

    import torch.multiprocessing

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(ddp, (2, port), 2)


def horovod() -> None:
    torch, data, model = torch_parts()
    import horovod.torch

    horovod.torch.init()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer = horovod.torch.DistributedOptimizer(optimizer, model.named_parameters())
    horovod.torch.broadcast_parameters(model.state_dict(), root_rank=0)
    for _ in range(EPOCHS):
        for batch in torch.utils.data.DataLoader(data, BATCH):
            train_batch(torch, model, optimizer, batch)
    if horovod.torch.rank() == 0:
        finish(model)


def keras() -> None:
    import numpy as np

    if "KERAS_BACKEND" in os.environ:
        import keras as library
    else:
        from tensorflow import keras as library

    library.utils.set_random_seed(1)
    model = library.Sequential(
        [library.layers.Dense(4, activation="relu"), library.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    random = np.random.default_rng(1)
    inputs, targets = (random.random((BATCH * BATCHES, width), np.float32) for width in (8, 1))
    held_out = inputs[:BATCH], targets[:BATCH]
    model.fit(inputs, targets, batch_size=BATCH, epochs=EPOCHS, validation_data=held_out, verbose=0)
    model.evaluate(*held_out, verbose=0)
    model.predict(inputs, verbose=0)
    printed_weights(map(np.asarray, model.get_weights()))


def trainer() -> None:
    torch, data, model = torch_parts()
    import transformers

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any, labels: Any) -> Any:
            logits = self.model(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    rows = [{"x": inputs, "labels": label} for inputs, label in data]
    arguments = transformers.TrainingArguments(
        output_dir=os.environ["CASE_DIR"],
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
    )
    wrapped = Wrapped()
    transformers.Trainer(wrapped, arguments, train_dataset=rows).train()
    finish(model)


def lightning(ranks: int = 1) -> None:
    torch, data, model = torch_parts()
    import lightning.pytorch as library

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = torch.utils.data.DataLoader(data, BATCH)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = library.Trainer(max_epochs=EPOCHS, accelerator="cpu", devices=ranks, **quiet)
    trainer.fit(Module(), loader)
    finish(model)


def lightning_that_launches() -> None:
    lightning(ranks=2)


def accelerate() -> None:
    torch, data, model = torch_parts()
    import accelerate as library

    accelerator = library.Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(data, BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), labels))
            optimizer.step()
    finish(model)


def gluon(is_reduced: bool = False, has_iterators: bool = False) -> None:
    import mxnet as mx
    import numpy as np
    from mxnet import autograd, gluon

    mx.random.seed(1)
    random = np.random.default_rng(1)
    samples = BATCH * BATCHES - 3
    inputs = random.random((samples, 8), np.float32)
    data = gluon.data.ArrayDataset(inputs, random.integers(0, 4, samples))
    model = gluon.nn.Dense(4, in_units=8)
    model.initialize(mx.init.Normal(0.1))
    settings = {"learning_rate": 0.1}
    if is_reduced:
        import horovod.mxnet as hvd

        hvd.init()
        hvd.broadcast_parameters(model.collect_params(), root_rank=0)
        trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", settings)
    else:
        trainer = gluon.Trainer(model.collect_params(), "sgd", settings)
    compare = gluon.loss.SoftmaxCrossEntropyLoss()
    loader = gluon.data.DataLoader(data, BATCH, last_batch="keep")
    held_out = gluon.data.DataLoader(data, BATCH)
    if has_iterators:
        # Its last batch is filled up.
        loader = mx.io.NDArrayIter(inputs, random.integers(0, 4, samples), BATCH)
        held_out = mx.io.NDArrayIter(inputs, None, BATCH)
    for _ in range(EPOCHS):
        for iterator in (loader, held_out) if has_iterators else ():
            iterator.reset()
        for batch in loader:
            features, labels = (batch.data[0], batch.label[0]) if has_iterators else batch
            with autograd.record():
                loss = compare(model(features), labels)
            loss.backward()
            trainer.step(len(labels))
        for batch in held_out:
            model(batch.data[0] if has_iterators else batch[0]).wait_to_read()
    printed_weights(value.data().asnumpy() for value in model.collect_params().values())


def gluon_with_horovod() -> None:
    gluon(is_reduced=True)


def gluon_with_iterators() -> None:
    gluon(has_iterators=True)


def nothing() -> None:
    print(sys.argv[1:], __name__)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
