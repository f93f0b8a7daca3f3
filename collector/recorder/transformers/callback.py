"""``StepLogger`` for Hugging Face's Trainer: a callback."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional

from transformers import TrainerCallback

from ..job.facts import known
from ..options import LogDir, OptionArguments, Options, with_options
from ..patching import own_attributes
from .recording import TransformersRecording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(TrainerCallback):  # type: ignore[misc]  # not installed with the app
    """Record where the time of every step goes, on every rank, into one small file per rank.

        Trainer(model, args, train_dataset=data, callbacks=[StepLogger("logs/run-42")]).train()

    Hooks on the gradients record when they are ready and reduced.

    Args:
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(self, log_dir: LogDir, **options: Unpack[OptionArguments]) -> None:
        super().__init__()
        self._options = Options(log_dir, **options)
        self._recording: Optional[TransformersRecording] = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._stop()
        trainer = known(_calling_trainer)
        self._recording = TransformersRecording(trainer, state, given, self._options)
        self._recording.begin()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self._recording is not None:
            self._recording.begin_trainers_epoch(state, given.get("train_dataloader"))

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self._recording is not None:
            self._recording.end_iteration()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if self._recording is not None:
            self._recording.end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._stop()

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()


def _calling_trainer() -> Any:
    """Return the Trainer whose training begins; None where it is not found.

    The Trainer gives callbacks the model without DistributedDataParallel, and not itself: it is found on
    the stack.
    """
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if "callback_handler" in own_attributes(owner) and hasattr(owner, "get_batch_samples"):
            return owner
        frame = frame.f_back  # type: ignore[assignment]  # None at the outermost call
    return None
