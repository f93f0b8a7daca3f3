"""``StepLogger`` for MXNet: a context around a training loop and its loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

import mxnet as mx

from ..loops.logger import LoopLogger, WatchedLoader
from ..options import LogDir, OptionArguments, Options, with_options
from .recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(LoopLogger):
    """Record where the time of every step goes, on every rank, into one small file per rank.

        with StepLogger("logs/run-42", trainer=trainer) as log:
            for epoch in range(epochs):
                for inputs, labels in log.watch(loader):
                    ...
                with log.validation():
                    ...

    One iteration of the loop is one step; iterations that only accumulate gradients are summed into it.

    MXNet's engine reports when the gradients are ready and reduced.

    Args:
        trainer: the ``gluon.Trainer``, with Horovod its ``hvd.DistributedTrainer``.
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(
        self,
        log_dir: LogDir,
        *,
        trainer: Any,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__()
        if not isinstance(trainer, mx.gluon.Trainer):
            raise TypeError("trainer is a gluon.Trainer, not %r" % (trainer,))
        self._trainer = trainer
        self._options = Options(log_dir, **options)

    def _new_recording(self) -> Recording:
        return Recording(self._trainer, self._options)

    def watch(self, loader: Iterable[Any]) -> WatchedLoader:
        """Iterate over ``loader`` and record each iteration; each loop is an epoch."""
        return WatchedLoader(self, loader)
