"""``StepLogger`` for Hugging Face's Trainer: a callback."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional

from transformers import TrainerCallback

from ..guards import own_attributes, patch, while_running
from ..job.job_facts import count_or_none, known, versions_of
from ..options import LogDir, OptionArguments, Options, with_options
from ..step_log.line_format import CHECKPOINT, VALIDATION
from .pytorch_logger import TrainerRecording

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


# -- Record one ``train`` of Hugging Face's Trainer -----------------------------------------------


class TransformersRecording(TrainerRecording):
    """A Trainer's ``train``; the Trainer fetches all batches of a step before it computes."""

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = ("_batches", "_global_step", "_loader", "_trainer", "_watched")

    def __init__(self, trainer: Any, state: Any, given: Dict[str, Any], options: Options) -> None:
        """Prepare the recording.

        Args:
            trainer: the Trainer; None where it was not found.
            state: the Trainer's state.
            given: the keyword arguments of the Trainer's callbacks.
            options: the arguments of StepLogger.
        """
        # The model as it trains, with DistributedDataParallel around it. Compiled models have no truth
        # value.
        wrapped = getattr(trainer, "model_wrapped", None)
        model = given.get("model") if wrapped is None else wrapped
        super().__init__(given.get("optimizer"), model, options)
        self._trainer = trainer
        # The epoch's loader, the Trainer's iterator over it, and that one watched.
        self._loader: Any = None
        self._batches: Any = None
        self._watched: Any = None
        self._global_step = count_or_none(getattr(state, "global_step", None)) or 0

    def begin(self) -> None:
        """Open the log, and watch the Trainer fetch batches, evaluate and save checkpoints."""
        if self._trainer is None:
            self.fail(RuntimeError("no Trainer of transformers 4.46 or later calls the callback"))
            return
        super().begin()

    def _watch_trainer(self) -> None:
        trainer = self._trainer
        self._watch_batches()
        self._stop_at_errors("get_batch_samples")
        self._time_pauses(trainer, "evaluate", VALIDATION)
        self._time_pauses(trainer, "_save_checkpoint", CHECKPOINT)
        self._stop_at_errors("training_step")
        accelerator = trainer.accelerator
        # It counts the tokens of all ranks before each step, and some models use it in their loss.
        self._undo.append(patch(accelerator, "gather", self._waits.timed(accelerator.gather)))

    def _steps_before(self) -> int:
        return self._global_step

    def _trainer_facts(self) -> Dict[str, Any]:
        arguments = self._trainer.args
        return {
            "versions": versions_of("torch", "transformers", "accelerate"),
            "epochs": _epochs(arguments),
            "accumulate_grad_batches": count_or_none(arguments.gradient_accumulation_steps),
            "groups_by_length": _groups_by_length(arguments),
        }

    @while_running
    def begin_trainers_epoch(self, state: Any, loader: Any) -> None:
        """Start the next epoch; the first one has the number that the Trainer's state has."""
        self.begin_loop(object(), loader)
        self.before_loop(loader)
        self._loader = loader
        first = int(getattr(state, "epoch", None) or 0) if self._epoch < 0 else None
        self.begin_epoch(first)

    def _watch_batches(self) -> None:
        original = self._trainer.get_batch_samples

        @functools.wraps(original)
        def get_batch_samples(*args: Any, **kwargs: Any) -> Any:
            self.begin_iteration()
            if args:
                args = (self._watched_batches(args[0]), *args[1:])
            return original(*args, **kwargs)

        self._undo.append(patch(self._trainer, "get_batch_samples", get_batch_samples))

    def _watched_batches(self, batches: Iterator[Any]) -> Any:
        """Return the batches of an epoch, which report their arrival; the same ones in each step."""
        if batches is not self._batches:
            self._batches = batches
            probed = self._probe.watch(self._loader, batches) if self.running else batches
            self._watched = _WatchedBatches(probed, self.batch_arrived)
        return self._watched

    def batch_arrived(self, batch: Any) -> None:
        """Note that a batch has arrived; a step may have several."""
        iteration = self._iteration
        if iteration is None:
            return
        try:
            before, first = iteration.shape, iteration.data is None
            # The batches of tokenizers contain a dict.
            self.data_arrived(getattr(batch, "data", batch))
            if not first:
                shapes: Any = [before] if iteration.micro == 1 else before
                iteration.shape = [*shapes, iteration.shape]
                iteration.micro += 1
        except Exception as error:
            self.fail(error)

    def _stop_at_errors(self, name: str) -> None:
        """End the recording if a method raises, because callbacks are not called then."""
        original = getattr(self._trainer, name)

        @functools.wraps(original)
        def stopping(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException:
                self.stop()
                raise

        self._undo.append(patch(self._trainer, name, stopping))


def _groups_by_length(arguments: Any) -> bool:
    """Return whether batches have samples of similar lengths; the setting's name has changed."""
    strategy = getattr(arguments, "train_sampling_strategy", None)
    return strategy == "group_by_length" or bool(getattr(arguments, "group_by_length", False))


def _epochs(arguments: Any) -> Optional[int]:
    """Return the number of epochs; None for fractions, and if the number of steps is given."""
    epochs = arguments.num_train_epochs
    if arguments.max_steps > 0 or epochs != int(epochs):
        return None
    return count_or_none(int(epochs))


class _WatchedBatches:
    """The Trainer's iterator, which reports every batch."""

    def __init__(self, batches: Iterator[Any], arrived: Callable[[Any], None]) -> None:
        self._batches = batches
        self._arrived = arrived

    def __iter__(self) -> "_WatchedBatches":
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        self._arrived(batch)
        return batch
