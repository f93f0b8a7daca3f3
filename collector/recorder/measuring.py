"""Runs a loader alone, batch by batch; what framework it is for is the caller's to know."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple, Union

from stallscope import __version__

from . import input_file
from .facts import host_facts
from .identity import World, launch_name
from .measured import MeasuredInput, Stage

logger = logging.getLogger("stallscope")

# Of what came, one part in so many at most is warm-up.
_MOST_WARM_UP = 3
_LONGEST_MESSAGE = 200

#: Stages of a pipeline, and why some or all of them are missing.
Stages = Tuple[List[Stage], Optional[str]]


class Loader(NamedTuple):
    """A loader, as the framework that it is from sees it."""

    kind: str
    batches: Callable[[], Iterator[Any]]
    samples_in: Callable[[Any], Optional[int]]
    #: Batches that may lie ready when the second one is asked for.
    ahead: int
    #: Measures the stages.
    stages: Callable[[], Stages]


def checked_steps(steps: Any) -> int:
    """The number of batches, if it is one.

    Raises:
        TypeError, ValueError: if not: before anything is measured a mistake may stop the program.
    """
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError("steps is a number of batches, not %r" % (steps,))
    if steps < 2:
        raise ValueError("steps is a number of batches from 2 on, not %r" % (steps,))
    return steps


def checked_folder(log_dir: Any) -> Optional[Path]:
    """The folder for the file; None where none is given.

    Raises:
        TypeError: for what is no folder.
    """
    if log_dir is None:
        return None
    if not isinstance(log_dir, (str, os.PathLike)) or log_dir == "":
        raise TypeError("log_dir is the folder of the run's logs, not %r" % (log_dir,))
    return Path(log_dir).absolute()


def measure(
    loader: Loader, steps: int, folder: Optional[Path], world: World, framework: str
) -> MeasuredInput:
    """Run a loader, then its stages, and keep what was measured. Whatever the data raises is told."""
    began = time_ns()
    with _random_numbers_stay():
        found = _measured(loader, steps)
    found.where = {
        "stallscope_input": input_file.VERSION,
        "recorder": __version__,
        "framework": framework,
        "run_id": os.environ.get("STALLSCOPE_RUN_ID") or None,
        "launch": launch_name(os.environ, world.size),
        "rank": world.rank,
        "size": world.size,
        **host_facts(),
        "began_wall_ns": began,
    }
    _keep(found, folder)
    return found


def _keep(found: MeasuredInput, folder: Optional[Path]) -> None:
    try:
        found.path = input_file.keep(found.document(), folder)
        found.no_path = "kept for the first recording of this process; say log_dir to write it now"
    except Exception as error:
        found.no_path = "not written: %s" % error
        logger.warning("stallscope: measure_input: %s; training goes on", found.no_path)


def said(error: BaseException) -> str:
    """An error of the user's data as the end of a sentence."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    text = text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"
    return "%s: %s" % (type(error).__name__, text) if text else type(error).__name__


def _measured(loader: Loader, steps: int) -> MeasuredInput:
    found = _run(loader, steps)
    if found.error is not None:
        logger.warning("stallscope: measure_input: %s; training is not touched", found.error)
    elif found.mean is None:
        found.no_stages = "too few batches came to measure anything"
    else:
        try:
            found.stages, found.no_stages = loader.stages()
        except Exception as error:
            found.no_stages = "stages: %s" % said(error)
    return found


@contextlib.contextmanager
def _random_numbers_stay() -> Iterator[None]:
    """Training draws the same numbers after a measurement as without one."""
    numpy = sys.modules.get("numpy")
    own, numpys = random.getstate(), None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(own)
        if numpy is not None:
            numpy.random.set_state(numpys)


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
        error = "the data raised at batch %d: %s" % (len(times), said(raised))
    warm_up = min(max(loader.ahead, len(times) // 10, 1), -(-len(times) // _MOST_WARM_UP))
    return MeasuredInput(loader.kind, times, warm_up, samples, ended, error)


def name_of(function: Any) -> str:
    """What a user calls a function, a method or an object that is called like one."""
    function = getattr(function, "func", function)  # functools.partial
    name: Union[str, None] = getattr(function, "__qualname__", None)
    if name is None:
        return type(function).__name__
    return name.replace("<locals>.", "").replace("<lambda>", "lambda")
