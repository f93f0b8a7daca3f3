"""The options that the StepLogger of every framework takes."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any, Callable, Optional, Tuple, TypedDict, TypeVar, Union

from .input.loader_wrappers import FEWEST_BATCHES
from .step_log.line_format import Sampling
from .step_log.sinks import check_sink
from .subprocesses import mlflow_run_of

LogDir = Union[str, "os.PathLike[str]", None]

_Constructor = TypeVar("_Constructor", bound=Callable[..., None])


class Options:
    """The options of one StepLogger, checked."""

    def __init__(
        self,
        log_dir: Union[str, "os.PathLike[str]", None],
        *,
        run_name: Optional[str] = None,
        synthetic: bool = False,
        batch_size: Optional[int] = None,
        mlflow_run_id: Optional[str] = None,
        sink: str = "file",
        sample_after: Optional[int] = None,
        sample_one_in: int = 20,
        max_file_mb: Optional[float] = None,
        flush_seconds: float = 1.0,
        stages: bool = True,
        stacks: bool = True,
        machine: bool = True,
        summary: Optional[bool] = None,
        scalars: Optional[str] = None,
        probe_input: Optional[int] = None,
        probe_every: Optional[int] = None,
    ) -> None:
        """Check the options before training starts.

        Args:
            log_dir: the folder for the logs. The ranks may share it, and a later job starts a new run.
            run_name: a name for people.
            synthetic: whether the data is synthetic, which makes this run a baseline.
            batch_size: samples per rank, with Keras in a step, elsewhere in an iteration; by default
                read from the batches.
            mlflow_run_id: the MLflow run that the log is uploaded to during training; by default
                ``MLFLOW_RUN_ID``. Needs mlflow-skinny on the ranks, and may be the same for all of them.
            sink: ``"file"``; ``"logging"`` for workers that share no disk and keep what they print: it
                writes records of the logger ``stallscope.steps``, from which the parsers restore the
                step log, and needs no folder; or ``"both"``.
            sample_after: for very long runs: after this many steps, record one step in
                ``sample_one_in`` in full, the same ones on all ranks, and the others as sums.
            sample_one_in: see ``sample_after``.
            max_file_mb: a log that has reached this size continues in another file.
            flush_seconds: the longest time between two writes of the log.
            stages: record when gradients are ready and reduced. Without it only the host's times are
                recorded.
            stacks: write the Python stacks (files, lines and functions, no values) of a rank whose step
                takes too long: the training thread's into the log, those of all threads into a file
                next to it after 30 seconds and after five minutes.
            machine: write the kernel's figures of the process and its host once a second (time on cores,
                memory, disk, throttling, network), and those of its connections to other hosts.
            summary: whether rank 0 prints six lines on the run when the program ends, in a notebook when
                the cell does; by default if it prints to a terminal or a notebook.
            scalars: where rank 0 adds step time by cause during training: ``"tensorboard:FOLDER"``,
                ``"wandb:FOLDER"`` or ``"mlflow:RUN_ID"``. Another process does so, which needs
                ``stallscope[app]``, and a log folder that the ranks share.
            probe_input: measure what faster input gains, once, after 100 iterations: this many batches
                (20 are enough) are fetched ahead, and trained on without waiting. Batches and their
                order stay the same. At most 256 MB per rank and 60 seconds. By default there is none.
            probe_every: measure it again after each so many iterations, and the first time, too.

        Raises:
            TypeError, ValueError: for invalid arguments. Nothing else is ever raised: an error in the
                recorder ends the recording with one warning, and training continues.
        """
        check_sink(sink)
        if log_dir is None and sink == "logging":
            # Later sessions of a process find their run by its folder.
            log_dir = "."
        # An empty name, as from a variable that is not set, would be the current folder.
        if not isinstance(log_dir, (str, os.PathLike)) or log_dir == "":
            raise TypeError("log_dir is the folder for the logs, not %r" % (log_dir,))
        if batch_size is not None and batch_size < 1:
            raise ValueError("batch_size is a number of samples, not %r" % (batch_size,))
        if mlflow_run_id is not None and not isinstance(mlflow_run_id, str):
            raise TypeError("mlflow_run_id is the id of an MLflow run, not %r" % (mlflow_run_id,))
        if not flush_seconds > 0:
            raise ValueError("flush_seconds is a time above 0, not %r" % (flush_seconds,))
        if max_file_mb is not None and not max_file_mb > 0:
            raise ValueError("max_file_mb is a size above 0, not %r" % (max_file_mb,))
        if probe_every is not None and not _is_number(probe_every, 2 * (probe_input or 1)):
            what = "probe_every is a number of iterations, at least twice probe_input, not %r"
            raise ValueError(what % (probe_every,))
        self.log_dir = Path(log_dir).absolute()
        self.run_name = run_name
        self.synthetic = bool(synthetic)
        self.batch_size = batch_size
        self.flush_seconds = float(flush_seconds)
        self.stages = bool(stages)
        self.stacks = bool(stacks)
        self.machine = bool(machine)
        self.summary = summary
        #: The format and the place; None for no scalars.
        self.scalars = None if scalars is None else _scalars(scalars, sink)
        self.mlflow_run_id = mlflow_run_of(mlflow_run_id)
        self.sink = sink
        #: Which steps are recorded in full; None records all of them.
        self.sampling = _sampling(sample_after, sample_one_in)
        self.max_file_bytes = None if max_file_mb is None else max(1, int(max_file_mb * 1e6))
        #: Batches that an input probe fetches ahead, 0 for none; iterations between two probes.
        self.probe_input = check_probe_input(probe_input) or 0
        self.probe_every = probe_every


class OptionArguments(TypedDict, total=False):
    """The keyword arguments of ``Options``, for type checkers."""

    run_name: Optional[str]
    synthetic: bool
    batch_size: Optional[int]
    mlflow_run_id: Optional[str]
    sink: str
    sample_after: Optional[int]
    sample_one_in: int
    max_file_mb: Optional[float]
    flush_seconds: float
    stages: bool
    stacks: bool
    machine: bool
    summary: Optional[bool]
    scalars: Optional[str]
    probe_input: Optional[int]
    probe_every: Optional[int]


def check_probe_input(batches: Optional[int]) -> Optional[int]:
    """Return the batches that an input probe fetches ahead.

    Raises:
        ValueError: if that is no number, or too small a number to show anything.
    """
    if batches is not None and batches != 0 and not _is_number(batches, FEWEST_BATCHES):
        what = "probe_input is a number of batches, at least %d, not %r"
        raise ValueError(what % (FEWEST_BATCHES, batches))
    return batches


def _is_number(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def with_options(constructor: _Constructor) -> _Constructor:
    """Show the options, not ``**options``, in the signature and the help of a StepLogger."""
    signature = inspect.signature(constructor)
    options = inspect.signature(Options.__init__).parameters
    named = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    parameters = {parameter.name: parameter for parameter in named}
    parameters.update(options)
    documented: Any = constructor
    documented.__signature__ = signature.replace(parameters=list(parameters.values()))
    documented.__doc__ = Options.__init__.__doc__
    return constructor


def _scalars(scalars: str, sink: str) -> Tuple[str, str]:
    # Few trainings need the modules that start another process.
    from .subprocesses import check_scalars

    checked = check_scalars(scalars)
    if sink == "logging":
        raise ValueError("scalars needs a log in a folder: use sink='both'")
    return checked


def _sampling(sample_after: Optional[int], sample_one_in: int) -> Optional[Sampling]:
    if not isinstance(sample_one_in, int) or sample_one_in < 1:
        raise ValueError("sample_one_in is a number of steps, not %r" % (sample_one_in,))
    if sample_after is None:
        return None
    if not isinstance(sample_after, int) or sample_after < 0:
        raise ValueError("sample_after is a number of steps, not %r" % (sample_after,))
    return Sampling(sample_after, sample_one_in)
