"""Train the causes chapter with PyTorch on Horovod, on DistributedDataParallel, or with the Trainer.

horovodrun -np 2 python benchmarks/scorecard/train_causes_torch.py PLAN OUT
torchrun --nproc-per-node 2 benchmarks/scorecard/train_causes_torch.py PLAN OUT
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2] / "tests" / "training"))
from asleep import wait_asleep
from causes_launch import LAYERS, Causes, Compile, Rank, Sink
from causes_plan import BATCH, read_plan
from pairs_launch import CLASSES, WIDTH, Pause
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from train_pairs_torch import Agree, Distribute, one_core_per_rank, with_ddp, with_horovod

Batch = dict[str, Tensor]


class Batches(Dataset):
    """So many batches, whose sizes the causes tell; each has an attention mask."""

    def __init__(self, causes: Causes, number: int) -> None:
        self._causes = causes
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> Batch:
        return next_batch(self._causes)


def next_batch(causes: Causes) -> Batch:
    """Return the next batch of a run, of zeros: only its size counts."""
    batch = causes.next_batch()
    places = torch.arange(batch.length)
    return {
        "inputs": torch.zeros(BATCH, batch.length),
        "attention_mask": (places < torch.tensor(batch.lengths)[:, None]).long(),
        "labels": torch.zeros(BATCH, dtype=torch.long),
    }


class Network(nn.Module):
    """Takes as long as the causes say for its inputs, and returns the loss, as the Trainer asks for."""

    def __init__(self, causes: Causes) -> None:
        super().__init__()
        torch.manual_seed(1)
        self._causes = causes
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))

    def forward(
        self, inputs: Tensor, labels: Tensor, attention_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        self._causes.compiled()
        self._causes.compute(inputs.numel())
        means = inputs.mean(1, keepdim=True).expand(-1, WIDTH)
        return {"loss": nn.functional.cross_entropy(self.layers(means), labels)}


def compiler(for_all_shapes: bool) -> Compile:
    """Return a function that compiles another one for each new length, or once for all of them."""
    # The new lengths of all runs, as many as they are. Each thread has its own limits.
    dynamo = torch._dynamo.config
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 10**6
    seconds = 0.0

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        # Dynamo traces, and the backend takes its time.
        time.sleep(seconds)
        return graph.forward

    @torch.compile(backend=backend, dynamic=for_all_shapes)
    def doubled(values: Tensor) -> Tensor:
        return values * 2

    def run(length: int, more: float) -> Tensor:
        nonlocal seconds
        seconds = more
        return doubled(torch.zeros(length))

    return run


def install(causes: Causes, model: nn.Module) -> None:
    """Give the causes what they need of PyTorch."""

    def save(sink: Sink) -> None:
        torch.save(model.state_dict(), sink)

    causes.save = save
    for fault in causes.run.faults:
        if fault.cause == "compilation":
            causes.compile = compiler(fault.repaired)


def train(
    causes: Causes,
    log_dir: Path,
    turns: int,
    steps: int,
    pause: Pause,
    *,
    distribute: Distribute,
) -> None:
    """Train one run with a loop, and pause after every turn, which is an epoch."""
    from stallscope.torch import StepLogger

    network = Network(causes)
    install(causes, network)
    model, optimizer = distribute(network, torch.optim.SGD(network.parameters(), lr=0.001))
    data: DataLoader = DataLoader(Batches(causes, steps), batch_size=None)
    with StepLogger(log_dir, optimizer=optimizer, model=model, run_name=causes.run.name) as log:

        def evaluate(wait: Callable[[], object]) -> None:
            with log.validation():
                wait()

        causes.evaluate = evaluate
        watched = log.watch(data)
        for _ in range(turns):
            for batch in watched:
                optimizer.zero_grad()
                model(**batch)["loss"].backward()
                optimizer.step()
                causes.end_of_step()
            pause()


class Indices(Dataset):
    """As many samples as the Trainer asks for; batches are made of none of them."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> int:
        return index


def train_with_trainer(causes: Causes, log_dir: Path, turns: int, steps: int, pause: Pause) -> None:
    """Train one run with Hugging Face's Trainer, and pause after every turn, which is an epoch."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from stallscope.transformers import StepLogger

    class AfterSteps(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            causes.end_of_step()

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            pause()

    network = Network(causes)
    install(causes, network)
    with tempfile.TemporaryDirectory() as saved:
        arguments = TrainingArguments(
            saved,
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=BATCH,
            num_train_epochs=turns,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            optim="sgd",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        Trainer(
            network,
            arguments,
            train_dataset=Indices(steps * BATCH * causes.run.ranks),
            data_collator=lambda _: next_batch(causes),
            callbacks=[StepLogger(log_dir, run_name=causes.run.name), AfterSteps()],
        ).train()


def main() -> None:
    path, out = Path(sys.argv[1]), Path(sys.argv[2])
    framework = read_plan(path).runs[0].framework

    def train_on(rank: int, ranks: int, distribute: Distribute, agree: Agree) -> None:
        if framework == "torch" and ranks > (os.cpu_count() or 1):
            # They would poll for others on cores that these need.
            wait_asleep()
        trained = (
            train_with_trainer if framework == "trainer" else partial(train, distribute=distribute)
        )
        Rank(out, rank, trained, agree).run(path)

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    one_core_per_rank()
    (with_horovod if framework == "torch" else with_ddp)(train_on)


if __name__ == "__main__":
    main()
