"""``StepLogger`` for PyTorch: a context around a training loop and its loader."""

from __future__ import annotations

import contextlib
import functools
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, Optional, Sequence, Union

import torch

from ..guards import never_raises, patch
from ..loop_recording import LoopLogger, WatchedLoader
from ..options import LogDir, OptionArguments, Options, check_probe_input, with_options
from .pytorch_recording import Recording

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
        model: the model, wrapped in ``DistributedDataParallel`` where that reduces the gradients;
            of Megatron-Core a list of its parts as well.
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(
        self,
        log_dir: LogDir,
        *,
        optimizer: Optional[torch.optim.Optimizer] = None,
        model: Union[torch.nn.Module, Sequence[torch.nn.Module], None] = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__()
        if optimizer is not None and not hasattr(optimizer, "param_groups"):
            raise TypeError("optimizer is a torch optimizer, not %r" % (optimizer,))
        if isinstance(model, (list, tuple)):
            model = torch.nn.ModuleList(model)
        if model is not None and not isinstance(model, torch.nn.Module):
            raise TypeError("model is a torch.nn.Module, not %r" % (model,))
        self._optimizer = optimizer
        self._model = model
        self._options = Options(log_dir, **options)
        # Whether the user marks epochs explicitly.
        self._explicit_epoch = False

    def _new_recording(self) -> Recording:
        return Recording(self._optimizer, self._model, self._options, self._first_step)

    def watch(
        self,
        loader: Iterable[Any],
        *,
        first_step: Optional[int] = None,
        probe_input: Optional[int] = None,
    ) -> "Watched":
        """Iterate over ``loader`` and record each iteration; each loop is an epoch.

        Args:
            loader: yields batches.
            first_step: the number of the loop's first step over the whole job, for a job that goes on
                from a checkpoint or an elastic state with an optimizer that counts no steps, like SGD.
            probe_input: as in ``__init__``, for this loader: also one that is no ``DataLoader``. Each of
                its batches must have memory of its own, and fetching one must not communicate.

        Raises:
            TypeError, ValueError: if ``first_step`` is not a number of steps, or ``probe_input`` not a
                number of batches.
        """
        return Watched(self, loader, first_step, check_probe_input(probe_input))

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

    def _iterate(self, recording: Recording) -> Iterator[Any]:
        is_epoch = not self._log._explicit_epoch
        recording.before_loop(self._loader)
        return recording.iterate(self._loader, self._batches(), is_epoch, self._probe_input)


# -- Record a training that the Trainer of another library runs, with PyTorch's recording ---------


class TrainerRecording(Recording):
    """A Trainer's training, recorded like a loop over batches."""

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = ()

    @never_raises
    def begin(self) -> None:
        """Open the log, and watch the Trainer."""
        self.start()
        if not self.running:
            return
        self._watch_trainer()
        session, steps = self._session, self._steps_before()
        assert session is not None
        session.facts(self._trainer_facts())
        if steps > session.next_step:
            # Training continues from a checkpoint, and the optimizer keeps no count.
            session.renumber(steps)

    def _watch_trainer(self) -> None:
        """Patch the Trainer to see batches, validation and checkpoints."""
        raise NotImplementedError

    def _trainer_facts(self) -> Dict[str, Any]:
        """Return the Trainer's facts that PyTorch's recording does not find."""
        raise NotImplementedError

    def _steps_before(self) -> int:
        """Return the steps that the Trainer counted before this training."""
        raise NotImplementedError

    def _time_pauses(self, trainer: Any, name: str, kind: str) -> None:
        """Record calls of one of the Trainer's methods as intervals."""
        original = getattr(trainer, name)

        @functools.wraps(original)
        def paused(*args: Any, **kwargs: Any) -> Any:
            self.begin_pause(kind)
            began = monotonic_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self.end_pause(kind, began)

        self._undo.append(patch(trainer, name, paused))
