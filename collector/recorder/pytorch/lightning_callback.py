"""``StepLogger`` for Lightning: a callback of the Trainer."""

from __future__ import annotations

import functools
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence

from torch.utils.data import DataLoader

from ..guards import patch
from ..job.job_facts import batches_in, count_or_none, known, versions_of
from ..options import LogDir, OptionArguments, Options, with_options
from ..step_log.line_format import CHECKPOINT, VALIDATION
from .batches import full_batches, shape_in
from .loader_figures import LoaderFigures
from .pytorch_logger import TrainerRecording

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Two names of one library. A Trainer accepts only callbacks of the same name.
if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class StepLogger(Callback):  # type: ignore[misc]  # not installed with the app
    """Record where the time of every step goes, on every rank, into one small file per rank.

        Trainer(callbacks=[StepLogger("logs/run-42")]).fit(model, loader)

    Hooks on the gradients record when they are ready and reduced.

    Args:
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(self, log_dir: LogDir, **options: Unpack[OptionArguments]) -> None:
        super().__init__()
        self._options = Options(log_dir, **options)
        self._recording: Optional[LightningRecording] = None
        self._validation_start = 0
        # The first epoch's iterator is made before the training starts.
        self._loader_figures = LoaderFigures()
        self._restore_connector: Optional[Callable[[], None]] = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._stop()
        self._loader_figures = LoaderFigures()
        self._restore_connector = known(lambda: _follow_loaders(trainer, self._loader_figures))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        figures = self._loader_figures
        recording = LightningRecording(trainer, pl_module, self._options, figures)
        self._recording = recording
        recording.begin()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.begin_loop(object(), getattr(trainer, "train_dataloader", None))
            self._recording.begin_epoch(trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.end_epoch()

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._recording is not None:
            self._recording.begin_batch(batch, batch_idx)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._recording is not None:
            self._recording.end_batch(batch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.begin_pause(VALIDATION)
        self._validation_start = monotonic_ns()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.end_pause(VALIDATION, self._validation_start)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        restore, self._restore_connector = self._restore_connector, None
        if restore is not None:
            restore()
        self._loader_figures.stop()
        if recording is not None:
            recording.stop()


def _follow_loaders(trainer: Any, figures: LoaderFigures) -> Callable[[], None]:
    """Watch the training's loaders when the Trainer has prepared them; return what ends that."""
    connector = trainer._data_connector
    prepare = connector._prepare_dataloader

    @functools.wraps(prepare)
    def prepared(*args: Any, **kwargs: Any) -> Any:
        loader = prepare(*args, **kwargs)
        if getattr(kwargs.get("mode"), "name", "") == "TRAINING":
            _follow(figures, loader)
        return loader

    return patch(connector, "_prepare_dataloader", prepared)


def _follow(figures: LoaderFigures, loader: Any) -> None:
    # Of data without a length, Lightning fetches one batch ahead.
    figures.follow(loader, looks_ahead=batches_in(loader) is None)


# -- Record one ``fit`` of Lightning's Trainer ----------------------------------------------------


class LightningRecording(TrainerRecording):
    """A Trainer's ``fit``."""

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = ("_batches", "_full", "_full_shape", "_in_batch", "_probes", "_trainer")

    def __init__(self, trainer: Any, module: Any, options: Options, figures: LoaderFigures) -> None:
        # Without a strategy that wraps it, the model is the module itself.
        model = getattr(trainer, "model", None)
        # Compiled models have no truth value.
        model = module if model is None else model
        optimizers = list(getattr(trainer, "optimizers", ()))
        super().__init__(optimizers[0] if optimizers else None, model, options)
        self._trainer = trainer
        self._probes = bool(options.probe_input)
        self._loader_figures = figures
        # The fetcher's iterator of this epoch, watched by the input probe.
        self._batches: Any = None
        # Batches at the start of an epoch that are certainly full.
        self._full: int = 0
        self._full_shape: Optional[Sequence[int]] = None
        # Whether this iteration's batch has reached the training step.
        self._in_batch = False

    def _watch_trainer(self) -> None:
        loop = self._trainer.fit_loop.epoch_loop
        self._watch(loop, "_on_before_fetch", self._before_fetch)
        self._watch(loop, "_on_after_fetch", self._after_fetch)
        self._time_pauses(self._trainer, "save_checkpoint", CHECKPOINT)

    def _steps_before(self) -> int:
        return int(self._trainer.global_step)

    def _trainer_facts(self) -> Dict[str, Any]:
        trainer = self._trainer
        return {
            "versions": versions_of("torch", "horovod", "lightning", "pytorch_lightning"),
            "epochs": count_or_none(trainer.max_epochs),
            "accumulate_grad_batches": count_or_none(trainer.accumulate_grad_batches),
        }

    def _watch(self, owner: Any, name: str, callback: Callable[[], None]) -> None:
        """Call a function before each call of a method, on this instance only."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            callback()
            return original(*args, **kwargs)

        self._undo.append(patch(owner, name, watched))

    def begin_loop(self, loop: object, loader: Any) -> None:
        if self._epoch >= 0:
            # The first epoch has its iterator already.
            _follow(self._loader_figures, loader)
        super().begin_loop(loop, loader)
        self._full, self._full_shape = full_batches(loader)

    def _before_fetch(self) -> None:
        if self._probes and self.running:
            self._watch_fetcher()
        # A training step that takes the iterator fetches in the middle of its iteration.
        if not self._in_batch:
            self.begin_iteration()

    def _watch_fetcher(self) -> None:
        """Put the input probe around the fetcher's iterator, which is another one in each epoch."""
        try:
            fit_loop = self._trainer.fit_loop
            fetcher, loader = fit_loop._data_fetcher, self._trainer.train_dataloader
            if fetcher.iterator is not self._batches:
                several = not isinstance(loader, DataLoader)
                loader = fit_loop._combined_loader if several else loader
                self._batches = self._probe.watch(loader, fetcher.iterator)
                fetcher.iterator = self._batches
        except Exception as error:
            self.fail(error)

    def _after_fetch(self) -> None:
        iteration = self._iteration
        if iteration is None or self._device is not None:
            self.data_arrived(None)
            return
        # As data_arrived does, without the call: its batch is not known yet, so nothing else is done.
        iteration.data = monotonic_ns()

    def begin_batch(self, batch: Any, index: int) -> None:
        """Pass a batch to the training step, the ``index``-th of its epoch."""
        if self._iteration is None:
            # Its fetch was not seen.
            self.begin_iteration()
        self._in_batch = True
        if index < self._full and batch is not None and self._iteration is not None:
            self._iteration.shape = self._full_shape
        else:
            self._count_samples(batch)

    def end_batch(self, batch: Any) -> None:
        """End the training step and the update after it."""
        self._in_batch = False
        iteration = self._iteration
        if iteration is not None and iteration.shape is None:
            # A training step that takes the iterator had no batch before.
            self._count_samples(batch)
        self.end_iteration()

    def _count_samples(self, batch: Any) -> None:
        iteration = self._iteration
        if iteration is None or iteration.shape is not None:
            return
        began = monotonic_ns()
        try:
            iteration.shape = shape_in(batch)
        except Exception as error:
            self.fail(error)
        self._own_ns += monotonic_ns() - began
