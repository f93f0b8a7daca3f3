"""Small trainings of Hugging Face's Trainer, recorded and with a bare callback (see turns.py).

StepLogger is called when the Trainer asks for a step's batches, for each batch, and when the step ends.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic_ns
from typing import Any, Dict

import torch
from torch_net import network
from transformers import Trainer, TrainerCallback, TrainingArguments
from turns import BATCH, WIDTH, Arms, Bare, Ruler, run

from stallscope.collector.recorder.pytorch.trainer_callback import TransformersRecording
from stallscope.transformers import StepLogger


class Net(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = network(layers)

    def forward(self, inputs: torch.Tensor) -> Dict[str, torch.Tensor]:
        return {"loss": self.layers(inputs).square().mean()}


HOOKS = ("on_step_begin", "on_pre_optimizer_step", "on_step_end")


class BareCallback(TrainerCallback):
    def __init__(self, tool: Bare) -> None:
        self.keep = tool.keep

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.keep(monotonic_ns())

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.keep(monotonic_ns())

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.keep(monotonic_ns())


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    net, data = Net(layers), [{"inputs": row} for row in torch.randn(BATCH * steps, WIDTH)]

    def train(callback: TrainerCallback) -> None:
        with TemporaryDirectory() as saved:
            arguments = TrainingArguments(
                saved,
                use_cpu=True,
                per_device_train_batch_size=BATCH,
                num_train_epochs=1,
                optim="sgd",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                remove_unused_columns=False,
                dataloader_pin_memory=False,
            )
            Trainer(net, arguments, train_dataset=data, callbacks=[callback]).train()

    def recorded(out: Path) -> None:
        train(StepLogger(out))

    def bare(tool: Bare) -> None:
        callback = BareCallback(tool)
        ruler.time_methods(callback, *HOOKS)
        train(callback)

    return recorded, bare


RECORDING = ("begin_iteration", "batch_arrived", "end_iteration")
run(arms, lambda ruler: ruler.time_methods(TransformersRecording, *RECORDING))
