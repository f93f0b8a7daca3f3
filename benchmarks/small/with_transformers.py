"""A small training of Hugging Face's Trainer, recorded: OUT LAYERS STEPS."""

import sys
from tempfile import TemporaryDirectory

import torch
from transformers import Trainer, TrainingArguments

from stallscope.transformers import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
WIDTH, BATCH = 64, 32


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts: list[torch.nn.Module] = []
        for _ in range(layers):
            parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 10))

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layers(inputs).square().mean()}


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
    data = [{"inputs": row} for row in torch.randn(BATCH * steps, WIDTH)]
    Trainer(Net(), arguments, train_dataset=data, callbacks=[StepLogger(out)]).train()
