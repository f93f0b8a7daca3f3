"""Train cells of the frameworks chapter with PyTorch, under torchrun; frameworks.py starts it.

torchrun --nproc-per-node 2 benchmarks/scorecard/train_frameworks_torch.py CELLS OUT
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from cells import read_cells
from frameworks_plan import batches_per_step
from frameworks_torch import BATCH, Collate, Network, Samples, agree, loader, sgd
from injection import Injection, Launch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stallscope.torch import StepLogger


def logger(injection: Injection, log_dir: Path, **options: Any) -> StepLogger:
    cell = injection.cell
    return StepLogger(log_dir, run_name=cell.name, synthetic=cell.synthetic, **options)


def transformers(injection: Injection, log_dir: Path, steps: int) -> None:
    from transformers import Trainer, TrainingArguments

    from stallscope.transformers import StepLogger

    cell = injection.cell
    with tempfile.TemporaryDirectory() as saved:
        arguments = TrainingArguments(
            saved,
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            optim="sgd",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        Trainer(
            Network(injection),
            arguments,
            train_dataset=Samples(steps * BATCH * cell.ranks),
            data_collator=Collate(injection),
            callbacks=[StepLogger(log_dir, run_name=cell.name, synthetic=cell.synthetic)],
        ).train()


def accelerate(injection: Injection, log_dir: Path, steps: int) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    batches, net = batches_per_step(injection.cell.framework), Network(injection)
    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=batches)
    data = loader(injection, steps * batches, readers=injection.cell.ranks)
    model, optimizer, data = accelerator.prepare(net, sgd(net), data)
    with logger(injection, log_dir, optimizer=optimizer, model=model) as log:
        for batch in log.watch(data):
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()


def no_sync(injection: Injection, log_dir: Path, steps: int) -> None:
    batches = batches_per_step(injection.cell.framework)
    model = DistributedDataParallel(Network(injection))
    optimizer = sgd(model)
    with logger(injection, log_dir, optimizer=optimizer, model=model) as log:
        for number, batch in enumerate(log.watch(loader(injection, steps * batches)), 1):
            reduces = number % batches == 0
            with contextlib.nullcontext() if reduces else model.no_sync():
                model(**batch)["loss"].backward()
            if reduces:
                optimizer.step()
                optimizer.zero_grad()


def compiled(injection: Injection, log_dir: Path, steps: int) -> None:
    model = DistributedDataParallel(Network(injection))
    _loop(injection, log_dir, steps, torch.compile(model))


def fsdp(injection: Injection, log_dir: Path, steps: int) -> None:
    from torch.distributed.fsdp import fully_shard

    model = Network(injection)
    fully_shard(model.first)
    fully_shard(model.second)
    fully_shard(model)
    _loop(injection, log_dir, steps, model)


def _loop(injection: Injection, log_dir: Path, steps: int, model: nn.Module) -> None:
    optimizer = sgd(model)
    with logger(injection, log_dir, optimizer=optimizer, model=model) as log:
        for batch in log.watch(loader(injection, steps)):
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()


TRAININGS = {
    "transformers": transformers,
    "accelerate": accelerate,
    "accumulate": accelerate,
    "no_sync": no_sync,
    "compiled": compiled,
    "fsdp": fsdp,
}


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    cells, steps = read_cells(plan)
    framework = cells[0].framework
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    launch = Launch(
        out, cells, steps, torch.distributed.get_rank(), batches=batches_per_step(framework)
    )
    launch.train(TRAININGS[framework], agree)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
