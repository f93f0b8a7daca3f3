"""Custom loops of PyTorch with the same cases for each library that trains in them, and slow stages."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import torch
from case_runner import REPEATED, Cases, Stopwatch, digest, raised_by
from fake_cuda import FakeCuda
from torch.utils.data import Dataset

from stallscope.collector.recorder.pytorch import pytorch_recording
from stallscope.collector.recorder.pytorch.cuda import CudaClock
from stallscope.torch import StepLogger

#: The delay of a slow stage of the last rank, longer than other delays on a busy machine.
SLOW_SECONDS = 0.12


def slow_seconds() -> float:
    """Return the delay of a slow stage: only the last rank's is slow."""
    names = ("HOROVOD_RANK", "HOROVOD_SIZE")
    names = names if names[0] in os.environ else ("RANK", "WORLD_SIZE")
    rank, ranks = (int(os.environ.get(name, "0")) for name in names)
    return SLOW_SECONDS if rank + 1 >= ranks else 0.0


@contextlib.contextmanager
def fake_device(lag_ns: int = 50_000_000) -> Iterator[FakeCuda]:
    """Make the recorder treat the CPU's parameters as those of a device that lags behind the host."""
    cuda, clock_of = FakeCuda(lag_ns=lag_ns), pytorch_recording._clock_of
    pytorch_recording._clock_of = lambda _: CudaClock(cuda, 0)
    try:
        yield cuda
    finally:
        pytorch_recording._clock_of = clock_of


class SlowData(Dataset):
    """A data set with a delay for each batch of a loader without workers."""

    def __init__(self, data: Any, batch: int, seconds: float) -> None:
        self._data = data
        self._batch = batch
        self._seconds = seconds
        self._samples = itertools.count()

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        if self._seconds and next(self._samples) % self._batch == 0:
            time.sleep(self._seconds)
        return self._data[index]


class Repeated:
    """The batches of a loader, whose samples are repeated more or less often."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(REPEATED)

    def __iter__(self) -> Iterator[Any]:
        for times, batch in zip(REPEATED, self._loader):
            inputs, labels = batch.values() if isinstance(batch, dict) else batch
            repeated = inputs[:, None].expand(-1, times, -1), labels
            yield dict(zip(batch, repeated)) if isinstance(batch, dict) else repeated


def averaged(module: Any, inputs: Any, named_inputs: Any) -> Any:
    """Average repeated samples: a model's hook before its forward pass."""

    def average(tensor: Any) -> Any:
        return tensor.mean(1) if tensor.dim() > 2 else tensor

    named = {name: average(tensor) for name, tensor in named_inputs.items()}
    return tuple(map(average, inputs)), named


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, inputs: Any, seconds: float) -> Any:
        context.seconds = seconds
        return inputs.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        if context.seconds:
            time.sleep(context.seconds)
        return gradient, None


def sleep_in_backward(inputs: Any, seconds: float) -> Any:
    """Return the inputs, and make their backward pass longer by these seconds."""
    return _Sleep.apply(inputs, seconds)


class Case:
    """The folder of a case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


class Loop:
    """A model, its optimizer and a loader, which a library has prepared for a custom loop."""

    def __init__(self, net: Any, model: Any, optimizer: Any, loader: Any) -> None:
        self.net, self.model, self.optimizer, self.loader = net, model, optimizer, loader

    def step(self, batch: Any, updates: bool) -> None:
        """Add the gradients of a batch, and update the model with all that have been added."""
        raise NotImplementedError

    def validate(self) -> None:
        # A validation without any time would not be in the log.
        time.sleep(0.001)

    def train(
        self,
        case: Case,
        recorded: bool = True,
        passes: int = 1,
        fail_at: int = -1,
        first_step: int | None = None,
        epochs: int = 2,
        **options: Any,
    ) -> dict[str, Any]:
        """Train some epochs, and update the model after so many batches and at an epoch's end."""
        stopwatch = Stopwatch()
        log = StepLogger(
            case.folder / "logs",
            optimizer=self.optimizer,
            model=self.model,
            run_name="plain run",
            **options,
        )
        with log if recorded else contextlib.nullcontext():
            for epoch in range(epochs):
                first = first_step if epoch == 0 else None
                batches = log.watch(self.loader, first_step=first) if recorded else self.loader
                for number, batch in enumerate(stopwatch.watch(batches), 1):
                    if number == fail_at:
                        raise OSError("the disk is gone")
                    self.step(batch, number % passes == 0 or number == len(self.loader))
                with log.validation() if recorded else contextlib.nullcontext():
                    self.validate()
                with log.checkpoint() if recorded else contextlib.nullcontext():
                    time.sleep(0.001)
        return self.seen(stopwatch=stopwatch.times)

    def seen(self, **more: Any) -> dict[str, Any]:
        """Return the weights, and what the recorder has left in model and optimizer."""
        return {"weights": self.weights(), "ours": self.ours(), **more}

    def weights(self) -> str:
        return digest(p.detach().numpy() for p in self.net.parameters())

    def ours(self) -> list[str]:
        raise NotImplementedError


def add_loops(name: str, loop: Callable[..., Loop], *tables: Cases, passes: int = 3) -> None:
    """Add the cases that show a library's promises.

    A case shows several of them where none disturbs the other: each case is a training on all ranks.

    Args:
        name: begins the names of the cases.
        loop: makes a loop; it knows ``passes``, ``slow_input`` and ``slow_backward`` (seconds).
        tables: to these.
        passes: of a step that accumulates gradients; an epoch has 12.
    """
    weights: list[str] = []

    def silent(case: Case) -> str:
        """Return the weights of a training without the recorder, which runs once for all cases."""
        if not weights:
            weights.append(loop().train(case, recorded=False)["weights"])
        return weights[0]

    def plain(case: Case) -> Any:
        """Continue a job after its 100th step."""
        return {**loop().train(case, first_step=100), "silent": silent(case)}

    def accumulates(case: Case) -> Any:
        silent = loop(passes=passes).train(case, recorded=False, passes=passes)["weights"]
        return {**loop(passes=passes).train(case, passes=passes), "silent": silent}

    def probed(case: Case) -> Any:
        return {**loop().train(case, probe_input=6, probe_every=12), "silent": silent(case)}

    def slow_input(case: Case) -> Any:
        return loop(slow_input=slow_seconds()).train(case, epochs=1)

    def repeats_with_slow_backward(case: Case) -> Any:
        training = loop(slow_backward=slow_seconds())
        training.loader = Repeated(training.loader)
        hook = training.net.register_forward_pre_hook(averaged, with_kwargs=True)
        try:
            training.train(case, epochs=1)
        finally:
            hook.remove()
        return training.seen()

    def raises(case: Case) -> Any:
        training = loop()
        raised = raised_by(lambda: training.train(case, fail_at=6))
        return training.seen(raised=raised)

    def recorder_breaks(case: Case) -> Any:
        with broken_recorder():
            recorded = loop().train(case)
        return {**recorded, "silent": silent(case)}

    knobs = (
        plain,
        accumulates,
        probed,
        slow_input,
        repeats_with_slow_backward,
        raises,
        recorder_breaks,
    )
    for function in knobs:
        function.__name__ = f"{name}_{function.__name__}"
        for table in tables:
            table.add(function)


@contextlib.contextmanager
def broken_recorder() -> Iterator[None]:
    """Let the recorder raise where it makes its notes of an iteration."""
    from stallscope.collector.recorder.pytorch import iterations

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    original, iterations.Iteration = iterations.Iteration, broken
    try:
        yield
    finally:
        iterations.Iteration = original
