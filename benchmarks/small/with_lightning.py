"""A small training of Lightning, recorded: OUT LAYERS STEPS."""

import sys

import lightning.pytorch as pl
import torch

from stallscope.lightning import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
WIDTH, BATCH = 64, 32


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        parts: list[torch.nn.Module] = []
        for _ in range(layers):
            parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 10))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.layers(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-3)


trainer = pl.Trainer(
    accelerator="cpu",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[StepLogger(out)],
)
loader = torch.utils.data.DataLoader(torch.randn(BATCH * steps, WIDTH), BATCH)
trainer.fit(Net(), loader)
