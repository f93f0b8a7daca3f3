"""Train a few steps on a device with one framework's recorder, for gpu_check.py.

    python -m gpu.frameworks OUT NAME DEVICE
    torchrun --nproc-per-node 2 -m gpu.one_gpu_rank gpu.frameworks OUT fsdp DEVICE

``OUT/logs`` holds the log. A framework that is not installed is an ImportError.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS, SAMPLES, INPUTS, CLASSES = 40, 64, 512, 10
#: Copies of ``copies``, of which the recorder times one in 64, and their size.
COPIES, COPIED_BYTES = 700, 64 * 10**6


def compiled(logs: str, device: str) -> None:
    import torch

    _torch_loop(logs, device, model=torch.compile(_network(device)))


def cuda_graphs(logs: str, device: str) -> None:
    import torch

    _torch_loop(logs, device, model=torch.compile(_network(device), mode="reduce-overhead"))


def mixed_precision(logs: str, device: str) -> None:
    import torch

    from stallscope.torch import StepLogger

    model = _network(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    scaler = torch.amp.GradScaler(device)
    with StepLogger(logs, optimizer=optimizer, model=model) as log:
        for inputs, labels in log.watch(_loader(num_workers=2, pin_memory=device == "cuda")):
            with torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(
                    model(inputs.to(device, non_blocking=True)), labels.to(device)
                )
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def ddp(logs: str, device: str) -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    _connect(device)
    _torch_loop(logs, device, model=DistributedDataParallel(_network(device)))
    torch.distributed.destroy_process_group()


def fsdp(logs: str, device: str) -> None:
    import torch
    from torch.distributed.fsdp import fully_shard

    _connect(device)
    model = _network(device)
    fully_shard(model[0])
    fully_shard(model)
    _torch_loop(logs, device, model=model)
    torch.distributed.destroy_process_group()


def accelerate(logs: str, device: str) -> None:
    import torch
    from accelerate import Accelerator

    from stallscope.torch import StepLogger

    accelerator = Accelerator(cpu=device == "cpu")
    model = _network(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, _loader())
    with StepLogger(logs, optimizer=optimizer, model=model) as log:
        for inputs, labels in log.watch(loader):
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), labels))
            optimizer.step()
            optimizer.zero_grad()


def copies(logs: str, device: str) -> None:
    """Copy large batches with Accelerate; ``OUT/copies.json`` has the training's own times of copies."""
    import torch
    from accelerate import Accelerator, data_loader

    from stallscope.torch import StepLogger

    copy, times_ms = data_loader.send_to_device, []

    def timed_copy(*args: Any, **kwargs: Any) -> Any:
        # Nothing else is on the stream, so that the times are those of the copies.
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        batch = copy(*args, **kwargs)
        if device == "cuda":
            torch.cuda.synchronize()
        times_ms.append(1e3 * (time.perf_counter() - began))
        return batch

    data_loader.send_to_device = timed_copy
    accelerator = Accelerator(cpu=device == "cpu")
    model = _network(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batch = torch.rand(SAMPLES, COPIED_BYTES // 4 // SAMPLES)
    data = torch.utils.data.DataLoader([batch] * COPIES, batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data)
    with StepLogger(logs, optimizer=optimizer, model=model) as log:
        for inputs in log.watch(loader):
            accelerator.backward(model(inputs[:, :INPUTS]).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    (Path(logs).parent / "copies.json").write_text(json.dumps(times_ms))


def lightning(logs: str, device: str) -> None:
    import lightning.pytorch as pl
    import torch

    from stallscope.lightning import StepLogger

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = _network("cpu")

        def training_step(self, batch: Any, index: int) -> Any:
            inputs, labels = batch
            return torch.nn.functional.cross_entropy(self.layers(inputs), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-3)

    trainer = pl.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[StepLogger(logs)],
    )
    trainer.fit(Net(), _loader())


def transformers(logs: str, device: str) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from stallscope.transformers import StepLogger

    ranks = int(os.environ.get("WORLD_SIZE", 1))
    tokens = torch.randint(256, (ranks * STEPS * 8, 32))
    size = {"vocab_size": 256, "n_positions": 32, "n_embd": 128, "n_layer": 2, "n_head": 2}
    arguments = TrainingArguments(
        str(Path(logs).parent / "saved"),
        use_cpu=device == "cpu",
        per_device_train_batch_size=8,
        num_train_epochs=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    data = [{"input_ids": row, "labels": row} for row in tokens]
    model = GPT2LMHeadModel(GPT2Config(**size))
    Trainer(model, arguments, train_dataset=data, callbacks=[StepLogger(logs)]).train()


def keras_on_jax(logs: str, _device: str) -> None:
    _keras(logs, "jax")


def keras_on_torch(logs: str, _device: str) -> None:
    _keras(logs, "torch")


def _keras(logs: str, backend: str) -> None:
    os.environ["KERAS_BACKEND"] = backend
    import keras
    import numpy as np

    from stallscope.keras import StepLogger

    inputs = np.random.rand(STEPS * SAMPLES, INPUTS).astype("float32")
    labels = np.random.randint(0, CLASSES, STEPS * SAMPLES)
    layers = [keras.layers.Dense(1024, "relu"), keras.layers.Dense(CLASSES)]
    model = keras.Sequential([keras.Input((INPUTS,)), *layers])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(inputs, labels, SAMPLES, callbacks=[StepLogger(logs)], verbose=0)


def _connect(device: str) -> None:
    # Keras on JAX needs no torch.
    from .ranks import connect, device_of

    connect(device_of(device))


def _network(device: str) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(INPUTS, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, CLASSES),
    ).to(device)


def _loader(**options: Any) -> Any:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    labels = torch.randint(CLASSES, (STEPS * SAMPLES,))
    data = TensorDataset(torch.rand(STEPS * SAMPLES, INPUTS), labels)
    return DataLoader(data, batch_size=SAMPLES, **options)


def _torch_loop(logs: str, device: str, model: Any) -> None:
    import torch

    from stallscope.torch import StepLogger

    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with StepLogger(logs, optimizer=optimizer, model=model) as log:
        for inputs, labels in log.watch(_loader()):
            loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


FRAMEWORKS: dict[str, Callable[[str, str], None]] = {
    "compiled": compiled,
    "cuda-graphs": cuda_graphs,
    "mixed-precision": mixed_precision,
    "ddp": ddp,
    "fsdp": fsdp,
    "accelerate": accelerate,
    "lightning": lightning,
    "transformers": transformers,
    "transformers-ranks": transformers,
    "keras-on-jax": keras_on_jax,
    "keras-on-torch": keras_on_torch,
}
#: Those that torchrun starts on two ranks.
CONNECTED = ("ddp", "fsdp", "transformers-ranks")

if __name__ == "__main__":
    {**FRAMEWORKS, "copies": copies}[sys.argv[2]](str(Path(sys.argv[1]) / "logs"), sys.argv[3])
