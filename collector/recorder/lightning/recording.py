"""One ``Trainer.fit``: PyTorch's recording, and what it learns from the Trainer."""

from __future__ import annotations

import functools
import sys
from time import monotonic_ns
from typing import Any, Callable, Dict, Optional, Sequence

from ..format import CHECKPOINT
from ..options import Options
from ..pytorch.batches import full_batches, shape_in
from ..pytorch.recording import Recording


class TrainerRecording(Recording):
    """What a Trainer does, recorded as a loop over batches is.

    None of its methods raises, as none of the other's does.
    """

    def __init__(self, trainer: Any, module: Any, options: Options) -> None:
        # Without a strategy that wraps it, the model is the module itself.
        model = getattr(trainer, "model", None) or module
        optimizers = list(getattr(trainer, "optimizers", ()))
        super().__init__(optimizers[0] if optimizers else None, model, options)
        self._trainer = trainer
        # Batches of an epoch, from the first, that are full for certain.
        self._full: int = 0
        self._full_shape: Optional[Sequence[int]] = None
        # Whether the batch of this turn has come to the training step.
        self._in_batch = False

    def begin(self) -> None:
        """Open the log, and watch the Trainer fetch batches and save checkpoints."""
        self.start()
        if not self.running:
            return
        try:
            loop = self._trainer.fit_loop.epoch_loop
            self._watch(loop, "_on_before_fetch", self._fetch_begins)
            self._watch(loop, "_on_after_fetch", self._fetch_ends)
            self._time_checkpoints()
            session = self._session
            assert session is not None
            session.facts(self._known())
            if self._trainer.global_step > session.next_step:
                # Goes on from a checkpoint, and the optimizer keeps no count.
                session.renumber(self._trainer.global_step)
        except Exception as error:
            self.fail(error)

    def _known(self) -> Dict[str, Any]:
        """What a Trainer knows beforehand, besides what PyTorch's recording finds."""
        trainer = self._trainer
        names = ("torch", "horovod", "lightning", "pytorch_lightning")
        versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
        return {
            "versions": {
                name: str(version) for name, version in versions.items() if version is not None
            },
            "epochs": _count(trainer.max_epochs),
            "accumulate_grad_batches": _count(trainer.accumulate_grad_batches),
        }

    def _watch(self, owner: Any, name: str, called: Callable[[], None]) -> None:
        """Be told when a method of this instance is called."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            called()
            return original(*args, **kwargs)

        self._replace(owner, name, watched)

    def _time_checkpoints(self) -> None:
        original = self._trainer.save_checkpoint

        @functools.wraps(original)
        def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
            self.pause_begins()
            began = monotonic_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self.pause_ends(CHECKPOINT, began)

        self._replace(self._trainer, "save_checkpoint", save_checkpoint)

    def _replace(self, owner: Any, name: str, wrapper: Any) -> None:
        setattr(owner, name, wrapper)

        def undo() -> None:
            # Something else was put there meanwhile: leave it.
            if vars(owner).get(name) is wrapper:
                delattr(owner, name)

        self._undo.append(undo)

    def loop_begins(self, loop: object, loader: Any) -> None:
        super().loop_begins(loop, loader)
        self._full, self._full_shape = full_batches(loader)

    def _fetch_begins(self) -> None:
        # A training step that takes the iterator fetches in the middle of its turn.
        if not self._in_batch:
            self.turn_begins()

    def _fetch_ends(self) -> None:
        if self._turn is not None:
            self.data_is_there(None)

    def batch_begins(self, batch: Any, index: int) -> None:
        """A batch goes to the training step, the ``index``-th of its epoch."""
        if self._turn is None:
            # Its fetch was not seen.
            self.turn_begins()
        self._in_batch = True
        if index < self._full and batch is not None and self._turn is not None:
            self._turn.shape = self._full_shape
        else:
            self._tell_samples(batch)

    def batch_ends(self, batch: Any) -> None:
        """The training step and the update after it are done."""
        self._in_batch = False
        # A training step that takes the iterator had no batch before.
        self._tell_samples(batch)
        self.turn_ends()

    def _tell_samples(self, batch: Any) -> None:
        turn = self._turn
        if turn is None or turn.shape is not None:
            return
        began = monotonic_ns()
        try:
            turn.shape = shape_in(batch)
        except Exception as error:
            self.fail(error)
        self._own_ns += monotonic_ns() - began


def _count(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and value >= 0 else None
