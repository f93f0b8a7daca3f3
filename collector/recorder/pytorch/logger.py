"""``StepLogger`` for PyTorch: a context around a training loop and its loader."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional

import torch

from ..loops.logger import LoopLogger, WatchedLoader
from ..options import LogDir, OptionArguments, Options, with_options
from .recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(LoopLogger):
    """Record where the time of every step goes, on every rank, into one small file per rank.

        with StepLogger("logs/run-42", optimizer=optimizer, model=model) as log:
            for epoch in range(epochs):
                for inputs, labels in log.watch(loader):
                    ...
                with log.validation():
                    ...

    One iteration of the loop is one step; iterations that only accumulate gradients are summed into it.

    Hooks on the gradients record when they are ready and reduced.

    Args:
        optimizer: the optimizer; with Horovod the result of ``hvd.DistributedOptimizer``.
        model: the model, wrapped in ``DistributedDataParallel`` where that reduces the gradients.
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(
        self,
        log_dir: LogDir,
        *,
        optimizer: Optional[torch.optim.Optimizer] = None,
        model: Optional[torch.nn.Module] = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__()
        if optimizer is not None and not hasattr(optimizer, "param_groups"):
            raise TypeError("optimizer is a torch optimizer, not %r" % (optimizer,))
        if model is not None and not isinstance(model, torch.nn.Module):
            raise TypeError("model is a torch.nn.Module, not %r" % (model,))
        self._optimizer = optimizer
        self._model = model
        self._options = Options(log_dir, **options)
        # Whether the user marks epochs explicitly.
        self._explicit_epoch = False

    def _new_recording(self) -> Recording:
        return Recording(self._optimizer, self._model, self._options, self._first_step)

    def watch(self, loader: Iterable[Any], *, first_step: Optional[int] = None) -> "Watched":
        """Iterate over ``loader`` and record each iteration; each loop is an epoch.

        Args:
            loader: yields batches.
            first_step: the number of the loop's first step over the whole job, for a job that goes on
                from a checkpoint or an elastic state with an optimizer that counts no steps, like SGD.

        Raises:
            TypeError: if ``first_step`` is not a number of steps.
        """
        return Watched(self, loader, first_step)

    @contextlib.contextmanager
    def epoch(self, number: Optional[int] = None) -> Iterator[None]:
        """Wrap an epoch of several loops, or one with a given number."""
        recording: Recording = self._started_recording()
        recording.begin_epoch(number)
        self._explicit_epoch = True
        try:
            yield
        finally:
            self._explicit_epoch = False
            recording.end_epoch()


class Watched(WatchedLoader):
    """A loader with recorded loops, which may be parts of an epoch."""

    _log: StepLogger

    def __iter__(self) -> Iterator[Any]:
        recording: Recording = self._log._recording_of_loop(self._first_step)
        is_epoch = not self._log._explicit_epoch
        return recording.iterate(self._loader, iter(self._loader), is_epoch)
