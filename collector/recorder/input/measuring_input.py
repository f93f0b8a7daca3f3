"""Run a loader alone, batch by batch, for any framework."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Protocol, Tuple, Union

from stallscope import __version__

from ..job.job_facts import host_facts
from ..job.world import World, launch_of_training, world_of_training
from . import input_times
from .input_times import MeasuredInput, Stage, Trial, best_of, mean_of

logger = logging.getLogger("stallscope")

# The longest time for trying a setting.
_MOST_TRIAL_SECONDS = 10.0
_PREFETCH_DEPTHS = (4, 8)
# Stored batch times per setting.
_MOST_BATCHES_KEPT = 500
_FEWEST_ROUNDS = 10

# At most this fraction (one in three) of the batches is warm-up.
_MOST_WARM_UP = 3
_LONGEST_MESSAGE = 200

#: Stages of a pipeline, and why some or all of them are missing.
Stages = Tuple[List[Stage], Optional[str]]


class Loader(NamedTuple):
    """A loader and what its framework knows about it."""

    framework: str
    kind: str
    batches: Callable[[], Iterator[Any]]
    samples_in: Callable[[Any], Optional[int]]
    #: Batches that may be prefetched by the time the second one is requested.
    ahead: int
    #: Measures the stages.
    stages: Callable[[], Stages]
    #: Return the batches with a number of workers and of batches that each prefetches; None without
    #: such settings.
    with_workers: Optional[Callable[[int, int], Iterator[Any]]] = None


def check_steps(steps: Any) -> int:
    """Return the number of batches.

    Raises:
        TypeError, ValueError: if it is invalid: an error may stop the program before measuring.
    """
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError("steps is a number of batches, not %r" % (steps,))
    if steps < 2:
        raise ValueError("steps is a number of batches from 2 on, not %r" % (steps,))
    return steps


def check_workers(workers: Any, loader: Loader) -> int:
    """Return the largest number of workers to try; 0 tries none.

    Raises:
        TypeError, ValueError: if it is invalid, or the loader has no workers.
    """
    if isinstance(workers, bool) or not isinstance(workers, int):
        raise TypeError("try_workers is a number of workers, not %r" % (workers,))
    if workers < 0:
        raise ValueError("try_workers is a number of workers from 0 on, not %r" % (workers,))
    if workers and loader.with_workers is None:
        raise ValueError("try_workers needs a DataLoader; %s has no workers to try" % loader.kind)
    return workers


def check_folder(log_dir: Any) -> Optional[Path]:
    """Return the folder for the file; None where none is given.

    Raises:
        TypeError: if it is not a folder.
    """
    if log_dir is None:
        return None
    if not isinstance(log_dir, (str, os.PathLike)) or log_dir == "":
        raise TypeError("log_dir is the folder of the run's logs, not %r" % (log_dir,))
    return Path(log_dir).absolute()


class MeasureInput(Protocol):
    """The signature of ``measure_input``."""

    def __call__(
        self,
        data: Any,
        steps: int = 200,
        log_dir: Union[str, "os.PathLike[str]", None] = None,
        try_workers: int = 0,
    ) -> MeasuredInput: ...


def measure_input_of(loader_of: Callable[[Any], Loader]) -> MeasureInput:
    """Return ``measure_input`` for a framework, which describes loaders or raises ``TypeError``."""

    def measure_input(
        data: Any,
        steps: int = 200,
        log_dir: Union[str, "os.PathLike[str]", None] = None,
        try_workers: int = 0,
    ) -> MeasuredInput:
        """Run the input alone, without training, and store its rate with the run.

            print(measure_input(dataset, log_dir="logs/run-42"))

        The stages of a ``tf.data`` pipeline or a ``DataLoader`` are measured too. A pipeline runs
        repeatedly, each time up to a later operation, and a stage is the time that its operation adds.
        A ``DataLoader`` runs in this process without its workers: its stages are the functions and
        transforms that its data set calls for a sample, and collating samples. Let all ranks measure at
        once: their loaders share disks and CPU cores. The random states of torch, NumPy and Python's
        ``random`` are restored.

        Args:
            data: any input of ``fit`` or of a training loop: a ``tf.data.Dataset`` of batches, a
                ``DataLoader``, a Keras ``Sequence`` or ``PyDataset``, an iterator or a generator of
                batches, with PyTorch any iterable of batches. An iterator or a generator is used up.
            steps: the most batches to take.
            log_dir: the folder of the run's logs; by default the folder of this process's current,
                latest or next recording.
            try_workers: with a ``DataLoader``, also try 1, 2, 4, … up to this number of workers, and
                deeper prefetching, each for ten seconds at most. The report proposes the smallest
                setting that keeps up with training.

        Returns:
            The result; it prints as a table. It includes an error that the data raises, which is also
            logged as a warning.

        Raises:
            TypeError, ValueError: for invalid arguments. Nothing else is ever raised.
        """
        loader = loader_of(data)
        count, folder = check_steps(steps), check_folder(log_dir)
        workers = check_workers(try_workers, loader)
        world = world_of_training(asks_jax=loader.framework == "jax")
        return measure(loader, count, folder, world, workers)

    return measure_input


def measure(
    loader: Loader, steps: int, folder: Optional[Path], world: World, workers: int = 0
) -> MeasuredInput:
    """Run a loader, then its stages, and save the result, which includes any error of the data.

    Args:
        loader: the loader.
        steps: the most batches to take.
        folder: where the result goes.
        world: the rank.
        workers: the largest number of workers to try.
    """
    began = time_ns()
    with _random_state_restored():
        result = _run_with_stages(loader, steps)
        if workers and result.mean is not None and loader.with_workers is not None:
            try:
                _try_settings(result.trials, loader.with_workers, workers, steps)
            except Exception as error:
                result.no_trials = "no more settings were tried: %s" % describe_error(error)
    result.where = {
        "stallscope_input": input_times.VERSION,
        "recorder": __version__,
        "framework": loader.framework,
        "run_id": os.environ.get("STALLSCOPE_RUN_ID") or None,
        "launch": launch_of_training(world.size),
        "rank": world.rank,
        "size": world.size,
        **host_facts(),
        "began_wall_ns": began,
    }
    _save(result, folder)
    return result


def _save(result: MeasuredInput, folder: Optional[Path]) -> None:
    try:
        result.path = input_times.save(result.document(), folder)
        result.no_path = (
            "kept for the first recording of this process; pass log_dir to write it now"
        )
    except Exception as error:
        result.no_path = "not written: %s" % error
        logger.warning("stallscope: measure_input: %s; training goes on", result.no_path)


def describe_error(error: BaseException) -> str:
    """Describe an error of the user's data as the end of a sentence."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    text = text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"
    return "%s: %s" % (type(error).__name__, text) if text else type(error).__name__


def _run_with_stages(loader: Loader, steps: int) -> MeasuredInput:
    result = _run(loader, steps)
    if result.error is not None:
        logger.warning("stallscope: measure_input: %s; training is not touched", result.error)
    elif result.mean is None:
        result.no_stages = "too few batches came to measure anything"
    else:
        try:
            result.stages, result.no_stages = loader.stages()
        except Exception as error:
            result.no_stages = "stages: %s" % describe_error(error)
    return result


def _try_settings(
    trials: List[Trial],
    with_workers: Callable[[int, int], Iterator[Any]],
    most: int,
    steps: int,
) -> None:
    """Try numbers of workers, and deeper prefetching with those up to the best; add to ``trials``."""
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count < most] + [most]
    for count in counts:
        trials.append(_trial(with_workers, count, 2, steps))
    best = best_of(trials)
    for count in [] if best is None else [count for count in counts if count <= best.workers]:
        for depth in _PREFETCH_DEPTHS:
            trials.append(_trial(with_workers, count, depth, steps))
    trials.sort(key=lambda trial: (trial.workers, trial.prefetch))


def _trial(
    with_workers: Callable[[int, int], Iterator[Any]], workers: int, prefetch: int, steps: int
) -> Trial:
    batches = with_workers(workers, prefetch)
    times: List[int] = []
    until = monotonic_ns() + int(_MOST_TRIAL_SECONDS * 1e9)
    # The first batches come from full queues, faster than the rate.
    ahead = workers * prefetch + 1
    wanted = ahead + max(steps, _FEWEST_ROUNDS * workers)
    with contextlib.suppress(StopIteration):
        while len(times) < wanted and monotonic_ns() < until:
            begin = monotonic_ns()
            next(batches)
            times.append(monotonic_ns() - begin)
    counted = times[ahead:]
    # Workers deliver in rounds, and only the first batch of a round is waited for: average rounds.
    starts = range(0, len(counted) - workers + 1, workers)
    rounds = [sum(counted[at : at + workers]) // workers for at in starts]
    mean = mean_of(rounds) if rounds else None
    return Trial(workers, prefetch, mean, counted[-_MOST_BATCHES_KEPT:])


@contextlib.contextmanager
def _random_state_restored() -> Iterator[None]:
    """Restore the random state, so that training draws the same numbers as without a measurement."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    pythons = random.getstate()
    numpys = None if numpy is None else numpy.random.get_state()
    torchs = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(pythons)
        if numpy is not None:
            numpy.random.set_state(numpys)
        if torch is not None:
            torch.set_rng_state(torchs)


def _run(loader: Loader, steps: int) -> MeasuredInput:
    times: List[int] = []
    samples: List[Optional[int]] = []
    ended, error = False, None
    try:
        batches = loader.batches()
        while len(times) < steps:
            begin = monotonic_ns()
            batch = next(batches)
            times.append(monotonic_ns() - begin)
            samples.append(loader.samples_in(batch))
    except StopIteration:
        ended = True
    except Exception as raised:
        error = "the data raised at batch %d: %s" % (len(times), describe_error(raised))
    warm_up = min(max(loader.ahead, len(times) // 10, 1), -(-len(times) // _MOST_WARM_UP))
    return MeasuredInput(loader.kind, times, warm_up, samples, ended, error)


def in_order(data: Any) -> Iterator[Any]:
    """Iterate over data that gives batches by number."""
    return (data[index] for index in range(len(data)))


def without_stages(data: Any) -> Callable[[], Stages]:
    """Return the stages of a loader that does not show them."""
    return lambda: ([], "%s does not show what it is made of: no stages" % name_of(data))


def name_of(function: Any) -> str:
    """Return the user's name for a function, a method or a callable object."""
    function = getattr(function, "func", function)  # functools.partial
    name: Union[str, None] = getattr(function, "__qualname__", None)
    if name is None:
        return type(function).__name__
    return name.replace("<locals>.", "").replace("<lambda>", "lambda")
