"""Small trainings of Lightning, recorded and with a bare callback (see turns.py).

StepLogger has two hooks around a step, and two around fetching its batch, which callbacks cannot have:
the bare callback has two others instead.
"""

from pathlib import Path
from time import monotonic_ns
from typing import Any

import lightning.pytorch as pl
import torch
from torch_net import loader, network
from turns import Arms, Bare, Ruler, run

from stallscope.collector.recorder.pytorch.lightning_callback import LightningRecording
from stallscope.lightning import StepLogger


class Net(pl.LightningModule):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = network(layers)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.layers(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-3)


HOOKS = ("on_train_batch_start", "on_before_backward", "on_after_backward", "on_train_batch_end")


class BareCallback(pl.Callback):
    def __init__(self, tool: Bare) -> None:
        self.keep = tool.keep

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        self.keep(monotonic_ns())

    def on_before_backward(self, trainer: Any, module: Any, loss: Any) -> None:
        self.keep(monotonic_ns())

    def on_after_backward(self, trainer: Any, module: Any) -> None:
        self.keep(monotonic_ns())

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        self.keep(monotonic_ns())


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    net, batches = Net(layers), loader(steps)

    def train(callback: pl.Callback) -> None:
        pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[callback],
        ).fit(net, batches)

    def recorded(out: Path) -> None:
        train(StepLogger(out))

    def bare(tool: Bare) -> None:
        callback = BareCallback(tool)
        ruler.time_methods(callback, *HOOKS)
        train(callback)

    return recorded, bare


RECORDING = ("_before_fetch", "_after_fetch", "begin_batch", "end_batch")
run(arms, lambda ruler: ruler.time_methods(LightningRecording, *RECORDING))
