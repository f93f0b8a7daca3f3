"""``StepLogger`` for JAX, and ``measure_input`` and ``synthetic_like`` for its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional

import jax
import numpy as np

from ..input.loader_wrappers import RepeatedBatch
from ..input.measuring_input import Loader, measure_input_of, name_of, without_stages
from ..keras_common.random_arrays import first_batch, random_array, random_generator
from ..loop_recording import LoopLogger, WatchedLoader
from ..options import LogDir, OptionArguments, Options, check_probe_input, with_options
from .jax_recording import Recording, shape_of

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

    def watch(
        self,
        batches: Iterable[Any],
        *,
        first_step: Optional[int] = None,
        probe_input: Optional[int] = None,
    ) -> "Watched":
        """Iterate over ``batches`` and record each iteration; each loop is an epoch.

        Args:
            batches: yields batches.
            first_step: the number of the loop's first step over the whole job, for a job that goes on
                from a checkpoint.
            probe_input: as in ``__init__``, for this loader: also one that is no ``DataLoader`` or list.
                Each of its batches must have memory of its own, and fetching one must not communicate.

        Raises:
            TypeError, ValueError: if ``first_step`` is not a number of steps, or ``probe_input`` not a
                number of batches.
        """
        return Watched(self, batches, first_step, check_probe_input(probe_input))

    def results(self, values: Any) -> None:
        """Pass a result of the step, such as its loss: the step ends when it is ready.

        Training does not wait for it. In several processes the call says that the host has dispatched
        the step: it follows the step at once, before anything reads the result.

        Args:
            values: an array, or several in any structure, that the next step does not delete
                (``donate_argnums``). All outputs of a compiled step are ready at once, so one is enough.
        """
        recording: Optional[Recording] = self._loop
        if recording is not None:
            recording.results(values)


class Watched(WatchedLoader):
    """Batches with recorded loops."""

    def _iterate(self, recording: Recording) -> Iterator[Any]:
        return recording.iterate(self._loader, self._batches(), self._probe_input)


# -- ``measure_input`` for JAX: the speed of a loader without training ----------------------------


def loader_of(data: Any) -> Loader:
    """Describe a loader; raise ``TypeError`` if it is not iterable."""
    if not hasattr(data, "__iter__"):
        raise TypeError(
            "data must be an iterable of batches; %s is not iterable" % type(data).__name__
        )
    kind = "iterator" if hasattr(data, "__next__") else name_of(type(data))
    return Loader("jax", kind, lambda: iter(data), _samples_in, 1, without_stages(data))


def _samples_in(batch: Any) -> Optional[int]:
    shape = shape_of(batch, jax.process_count(), jax.local_device_count())
    return int(shape[0]) if shape else None


measure_input = measure_input_of(loader_of)

# -- Random data in the shape of real data, as input of a baseline run ----------------------------


def synthetic_like(batches: Iterable[Any]) -> RepeatedBatch:
    """Make random batches with the same structure, shapes and dtypes as real ones, held in memory.

    They are modelled on one real batch, and integers stay within its range, so that labels stay valid.
    One random batch is repeated. Arrays stay NumPy's or JAX's, on the same devices.

    Args:
        batches: any iterable of batches; of an iterator, the first one is used up.

    Returns:
        Batches, as many as the real ones where these have a length, otherwise endless.

    Raises:
        ValueError: if there is no batch.
    """
    generator = random_generator()
    real = first_batch(iter(batches))
    return RepeatedBatch(
        batches, jax.tree_util.tree_map(lambda leaf: _random_like(leaf, generator), real)
    )


def _random_like(leaf: Any, generator: np.random.Generator) -> Any:
    """Return a random array like this one; other leaves, and other processes' arrays, stay."""
    if isinstance(leaf, np.ndarray):
        return random_array(leaf, generator)
    if isinstance(leaf, jax.Array) and leaf.is_fully_addressable:
        if not jax.dtypes.issubdtype(leaf.dtype, np.number):
            return leaf
        return jax.device_put(
            random_array(np.asarray(leaf), generator).astype(leaf.dtype), leaf.sharding
        )
    return leaf
