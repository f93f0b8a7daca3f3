"""``StepLogger`` for JAX: a context around a training loop and its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Optional

from ..loops.logger import LoopLogger, WatchedLoader
from ..options import LogDir, OptionArguments, Options, with_options
from .recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(LoopLogger):
    """Record where the time of every step goes, on every process, into one small file per process.

        with StepLogger("logs/run-42") as log:
            for epoch in range(epochs):
                for batch in log.watch(batches):
                    state, loss = train_step(state, batch)
                    log.results(loss)
                with log.validation():
                    ...

    One iteration of the loop is one step; iterations without results, which only accumulate gradients,
    are summed into the next one with results.

    Args:
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(self, log_dir: LogDir, **options: Unpack[OptionArguments]) -> None:
        super().__init__()
        self._options = Options(log_dir, **options)

    def _new_recording(self) -> Recording:
        return Recording(self._options, self._first_step)

    def watch(self, batches: Iterable[Any], *, first_step: Optional[int] = None) -> WatchedLoader:
        """Iterate over ``batches`` and record each iteration; each loop is an epoch.

        Args:
            batches: yields batches.
            first_step: the number of the loop's first step over the whole job, for a job that goes on
                from a checkpoint.

        Raises:
            TypeError: if ``first_step`` is not a number of steps.
        """
        return WatchedLoader(self, batches, first_step)

    def results(self, values: Any) -> None:
        """Pass a result of the step, such as its loss: the step ends when it is ready.

        Training does not wait for it.

        Args:
            values: an array, or several in any structure, that the next step does not delete
                (``donate_argnums``). All outputs of a compiled step are ready at once, so one is enough.
        """
        recording: Optional[Recording] = self._loop
        if recording is not None:
            recording.results(values)
