"""Train small models in one training run of Ray Train: for test_ray.py.

    python ray_cases.py OUT SESSIONS

The function of ``OUT/page.py``, a loop, Hugging Face's Trainer (with a relative folder) and Lightning
each have a log folder that all workers share. In the last training each worker has its own, rank 1 is
killed, and Ray restarts both. ``SESSIONS`` is the folder for Ray's own files; its path is short.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

RANKS = 2
STEPS = 40
#: Much longer than the rest of a step.
SLOW_SECONDS = 0.04
FATAL_STEP = 25
#: After this many steps there is a checkpoint.
SAVED_STEP = 20
FLUSH_SECONDS = 0.1


def batches(steps: int = STEPS) -> list[Any]:
    import torch

    random = torch.Generator().manual_seed(ray.train.get_context().get_world_rank())
    return [
        (torch.rand(16, 8, generator=random), torch.randint(4, (16,), generator=random))
        for _ in range(steps)
    ]


def slowly(ready: list[Any]) -> Iterator[Any]:
    """Yield batches, late on rank 1."""
    for batch in ready:
        time.sleep(SLOW_SECONDS * ray.train.get_context().get_world_rank())
        yield batch


def loop(out: Path) -> None:
    """Train in a custom loop, with slow input on rank 1."""
    import torch

    from stallscope.torch import StepLogger

    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with StepLogger(
        out / "loop", optimizer=optimizer, model=model, run_name="loop", sink="both", summary=True
    ) as log:
        for inputs, labels in log.watch(slowly(batches())):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def prepared(out: Path) -> None:
    """Train with a loader that Ray has prepared, which has workers, without and with a probe."""
    import torch
    from case_runner import digest
    from torch.utils.data import DataLoader, TensorDataset

    from stallscope.torch import StepLogger

    random = torch.Generator().manual_seed(5)
    data = TensorDataset(
        torch.rand(12 * 16 * RANKS, 8, generator=random), torch.arange(12 * 16 * RANKS) % 4
    )

    def trained(is_recorded: bool) -> str:
        torch.manual_seed(3)
        model = ray.train.torch.prepare_model(torch.nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        loader = ray.train.torch.prepare_data_loader(DataLoader(data, 16, num_workers=1))
        options = {"probe_input": 6, "probe_every": 12, "run_name": "prepared"}
        log = StepLogger(out / "prepared" / "logs", optimizer=optimizer, model=model, **options)
        with log if is_recorded else contextlib.nullcontext():
            for _ in range(2):
                for inputs, labels in log.watch(loader) if is_recorded else loader:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                    optimizer.step()
        return digest(weight.detach().numpy() for weight in model.parameters())

    results = {"silent": trained(False), "weights": trained(True)}
    rank = ray.train.get_context().get_world_rank()
    (out / "prepared" / f"result-{rank}.json").write_text(json.dumps(results))


def hugging_face(out: Path) -> None:
    import torch
    from ray.train.huggingface.transformers import prepare_trainer
    from transformers import Trainer, TrainingArguments

    from stallscope.transformers import StepLogger

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 4)

        def forward(self, inputs: Any, labels: Any) -> Any:
            return {"loss": torch.nn.functional.cross_entropy(self.layer(inputs), labels)}

    data = [{"inputs": inputs[0], "labels": labels[0]} for inputs, labels in batches(STEPS * RANKS)]
    arguments = TrainingArguments(
        str(out / "saved"),
        use_cpu=True,
        per_device_train_batch_size=1,
        num_train_epochs=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    callbacks = [StepLogger("logs/hugging_face", run_name="hugging face")]
    prepare_trainer(Trainer(Net(), arguments, train_dataset=data, callbacks=callbacks)).train()


def lightning(out: Path) -> None:
    import lightning.pytorch as pl
    import torch
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer

    from stallscope.lightning import StepLogger

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 4)

        def training_step(self, batch: Any, index: int) -> Any:
            inputs, labels = batch
            return torch.nn.functional.cross_entropy(self.layer(inputs), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = pl.Trainer(
        accelerator="cpu",
        devices="auto",
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[StepLogger(out / "lightning", run_name="lightning")],
    )
    prepare_trainer(trainer).fit(Net(), torch.utils.data.DataLoader(batches(), batch_size=None))


def page(out: Path) -> None:
    """Call the function of the docs' page."""
    runpy.run_path(str(out / "page.py"))["train"]({"logs": str(out / "page")})


def train(config: dict[str, str]) -> None:
    if ray.train.get_checkpoint() is None:
        for kind in (page, loop, prepared, hugging_face, lightning):
            kind(Path(config["out"]))
    restarted(Path(config["out"]))


def restarted(out: Path) -> None:
    import torch
    from rows_on_disk import wait_for_step

    from stallscope.torch import StepLogger

    rank, first_step = ray.train.get_context().get_world_rank(), 0
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 4)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "state.pt")
        first_step = saved["step"]
        model.load_state_dict(saved["model"])
    model = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    logger = StepLogger(
        out / "own" / f"host-{rank}",
        optimizer=optimizer,
        model=model,
        run_name="restarted",
        flush_seconds=FLUSH_SECONDS,
    )
    with logger as log:
        every = enumerate(batches()[first_step:], first_step + 1)
        for step, (inputs, labels) in log.watch(every, first_step=first_step):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            if step == SAVED_STEP:
                report(step, model, rank)
            if step == FATAL_STEP and checkpoint is None and rank == 1:
                wait_for(out / "storage" / "kinds" / "checkpoint_manager_snapshot.json", '"step":')
                for peer in range(RANKS):
                    wait_for_step(out / "own" / f"host-{peer}", peer, step - 2)
                os.kill(os.getpid(), signal.SIGKILL)


def wait_for(file: Path, text: str) -> None:
    while not file.exists() or text not in file.read_text():
        time.sleep(FLUSH_SECONDS)


def report(step: int, model: Any, rank: int) -> None:
    """Save a checkpoint on rank 0; all workers report."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        torch.save({"step": step, "model": model.module.state_dict()}, Path(folder) / "state.pt")
        saved = Checkpoint.from_directory(folder) if rank == 0 else None
        ray.train.report({"step": step}, checkpoint=saved)


def main() -> None:
    out, sessions = sys.argv[1:]
    ray.init(num_cpus=RANKS, include_dashboard=False, _temp_dir=sessions)
    TorchTrainer(
        train,
        train_loop_config={"out": out},
        scaling_config=ScalingConfig(num_workers=RANKS),
        run_config=RunConfig(
            name="kinds",
            storage_path=f"{out}/storage",
            failure_config=FailureConfig(max_failures=1),
        ),
    ).fit()


if __name__ == "__main__":
    main()
