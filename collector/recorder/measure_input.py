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

from . import input_file
from .facts import host_facts
from .identity import World, launch_name, world_of_training
from .measured_input import MeasuredInput, Stage

logger = logging.getLogger("stallscope")

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
    ) -> MeasuredInput: ...


def measure_input_of(loader_of: Callable[[Any], Loader]) -> MeasureInput:
    """Return ``measure_input`` for a framework, which describes loaders or raises ``TypeError``."""

    def measure_input(
        data: Any,
        steps: int = 200,
        log_dir: Union[str, "os.PathLike[str]", None] = None,
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

        Returns:
            The result; it prints as a table. It includes an error that the data raises, which is also
            logged as a warning.

        Raises:
            TypeError, ValueError: for invalid arguments. Nothing else is ever raised.
        """
        loader = loader_of(data)
        count, folder = check_steps(steps), check_folder(log_dir)
        return measure(loader, count, folder, world_of_training())

    return measure_input


def measure(loader: Loader, steps: int, folder: Optional[Path], world: World) -> MeasuredInput:
    """Run a loader, then its stages, and save the result, which includes any error of the data."""
    began = time_ns()
    with _random_state_restored():
        result = _run_with_stages(loader, steps)
    result.where = {
        "stallscope_input": input_file.VERSION,
        "recorder": __version__,
        "framework": loader.framework,
        "run_id": os.environ.get("STALLSCOPE_RUN_ID") or None,
        "launch": launch_name(os.environ, world.size),
        "rank": world.rank,
        "size": world.size,
        **host_facts(),
        "began_wall_ns": began,
    }
    _save(result, folder)
    return result


def _save(result: MeasuredInput, folder: Optional[Path]) -> None:
    try:
        result.path = input_file.save(result.document(), folder)
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


@contextlib.contextmanager
def _random_state_restored() -> Iterator[None]:
    """Restore the random state, so that training draws the same numbers as without a measurement."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    own = random.getstate()
    numpys = None if numpy is None else numpy.random.get_state()
    torchs = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(own)
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
