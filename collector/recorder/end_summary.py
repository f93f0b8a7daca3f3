"""Print a summary in six lines when the program ends, or the cell of a notebook, on rank 0."""

from __future__ import annotations

import atexit
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .job.world import World, ray_worker
from .row_lines import PARTS, WAITING, OwnSteps
from .subprocesses import PYTHON_OF_THE_APP, Limits, program, run_limited

#: How long the end of the program is delayed at most. Rank 0 still has its own memory.
LIMITS = Limits(seconds=15.0, memory_bytes=1_000_000_000)
#: How long other ranks have to close their logs, within these limits.
WAIT_SECONDS = 3.0
# How the reason starts if there is no summary of all ranks for lack of something.
_NEEDS = "this needs "
_INSTALL = "pip install 'stallscope[app]'"


class Training(NamedTuple):
    """A training that has ended."""

    log_dir: Path
    run_id: str
    world: World
    own_steps: OwnSteps
    sink: str
    mlflow_run_id: Optional[str]

    @property
    def has_folder(self) -> bool:
        return self.sink != "logging"

    @property
    def command(self) -> str:
        """Return the command that prints the full report."""
        if self.mlflow_run_id and self.has_folder:
            return "stallscope report mlflow:%s" % self.mlflow_run_id
        if self.has_folder:
            return "stallscope report %s" % shlex.quote(str(self.log_dir))
        return "stallscope report FILE, where FILE has the output of all ranks"


# By log folder: the steps of this process.
_own_steps: Dict[str, OwnSteps] = {}


# The training that ended last; None once it is printed or another one has started.
_ended: Optional[Training] = None


# The process that prints it: a forked one inherits all this.
_pid: Optional[int] = None


def begin(log_dir: Path, world: World, summary: Optional[bool]) -> Optional[OwnSteps]:
    """Prepare the summary of a starting training; return an object that sums its steps.

    Call it before the session registers its own end: at exit, what was registered last runs first.

    Args:
        log_dir: the folder of its logs.
        world: the rank of this process.
        summary: whether to print one; None: only to a terminal or a notebook.

    Returns:
        None where this process prints no summary.
    """
    global _ended, _pid
    _ended = None
    if not _is_wanted(world, summary):
        return None
    if _pid != os.getpid():
        _pid = os.getpid()
        atexit.register(_at_exit)
    own_steps = _own_steps.setdefault(str(log_dir), OwnSteps())
    own_steps.interrupt()
    return own_steps


def training_ended(training: Training) -> None:
    """Print the summary when the program ends, in a notebook when the cell does, in Ray's workers now.

    Never raises.
    """
    global _ended
    _ended = training if training.own_steps.steps else None
    try:
        shell = _shell()
        if shell is not None:
            _print_after_the_cell(shell)
        elif ray_worker() is not None:
            # Ray kills its workers, so their exit handlers never run.
            _print_once(sys.stderr)
    except Exception:  # no error may reach training
        pass


def _at_exit() -> None:
    # An error must be printed last, and reach the launcher at once.
    if hasattr(sys, "last_type"):
        return
    only_output = _is_terminal(sys.stdout) and not _is_terminal(sys.stderr)
    _print_once(sys.stdout if only_output else sys.stderr)


def _print_after_the_cell(shell: Any) -> None:
    def cell_ended(*_: Any) -> None:
        shell.events.unregister("post_run_cell", cell_ended)
        # Notebooks mark what is on standard error as a problem.
        _print_once(sys.stdout)

    shell.events.register("post_run_cell", cell_ended)


def _print_once(stream: Any) -> None:
    global _ended
    training, _ended = _ended, None
    if training is None or os.getpid() != _pid:
        return
    try:
        # Imported at the end of training, not at its start.

        text = "\n".join(summary_lines(training)) + "\n"
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except (Exception, KeyboardInterrupt):  # the summary must not change the program's result
        pass


def _is_wanted(world: World, summary: Optional[bool]) -> bool:
    if world.rank != 0:
        return False
    if summary is not None:
        return bool(summary)
    return _is_terminal(sys.stderr) or _is_terminal(sys.stdout) or _shell() is not None


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except Exception:  # closed, or replaced
        return False


def _shell() -> Optional[Any]:
    """Return IPython's shell; None where none runs."""
    ipython = sys.modules.get("IPython")
    try:
        return None if ipython is None else ipython.get_ipython()
    except Exception:  # half imported
        return None


# -- Write the six lines on a training that has ended ---------------------------------------------
#
# Another process analyses the logs of all ranks, because the recorder imports only the standard
# library. If that fails, the lines show rank 0's own measurements.


def summary_lines(training: Training) -> List[str]:
    """Return the lines, after up to ``LIMITS.seconds``."""
    lines, reason = lines_of_all_ranks(training)
    if not lines:
        return lines_of_one_rank(training, reason)
    if training.mlflow_run_id:
        lines[-1] = "  more: %s" % training.command
    return lines


def lines_of_all_ranks(training: Training) -> Tuple[List[str], str]:
    """Return the lines from all logs in the folder, or no lines and the reason."""
    if not training.has_folder:
        return [], "the log has no file"
    if sys.version_info < PYTHON_OF_THE_APP:
        return [], "%sPython 3.11 or later" % _NEEDS
    source = "%s#%s" % (training.log_dir, training.run_id)
    words = ("summary", str(LIMITS.seconds), str(WAIT_SECONDS), source)
    try:
        process = run_limited(program("stallscope.cli.beside_training", *words), LIMITS)
    except Exception as error:
        return [], "the analysis did not start: %s" % error
    if process.reached:
        return [], "the analysis of all ranks was ended at its limit of %s" % process.reached
    if process.status != 0:
        return [], _message(process.errors) or "the analysis ended with status %d" % process.status
    return process.output.splitlines(), ""


def _message(errors: str) -> str:
    """Return the last line of the errors, if it is one of Stallscope's sentences."""
    _, prefix, message = errors.rstrip().rpartition("\n")[2].partition("stallscope: ")
    if message.startswith(_NEEDS):
        # How to install it is in the last of the six lines.
        return message.partition(":")[0]
    return message if prefix else ""


def lines_of_one_rank(training: Training, reason: str) -> List[str]:
    """Return the lines from rank 0's own steps, with the reason why there are no others."""
    alone = training.world.size == 1
    where = training.log_dir if training.has_folder else "records in the program's output"
    missing = reason.startswith(_NEEDS)
    return [
        "stallscope: no verdict: %s" % reason,
        "  step time: %s" % _step_time(training.own_steps, alone),
        "  stragglers: %s" % ("a single rank does not wait for others" if alone else "unknown"),
        "  potential gain: unknown",
        "  logs: %s (run %s, rank 0 of %d)" % (where, training.run_id, training.world.size),
        "  more: %s%s" % ("%s, then " % _INSTALL if missing else "", training.command),
    ]


def _step_time(own_steps: OwnSteps, alone: bool) -> str:
    whole, parts = own_steps.whole_ns, own_steps.parts_ns
    if whole is None:
        return "too few steps (%d)" % own_steps.steps
    unit, length = ("s", 1e9) if whole >= 1e9 else ("ms", 1e6)
    decimals = 2 if whole < 10 * length else 1
    text = "%.*f %s on rank 0, the mean of %d steps" % (
        decimals,
        whole / length,
        unit,
        own_steps.counted,
    )
    if parts is None:
        return "%s; its stages were not measured" % text
    shown = [
        "%s %.*f %s" % (name, decimals, part / length, unit)
        for name, part in zip(PARTS, parts)
        if not (alone and name == WAITING)
    ]
    return "%s: %s" % (text, ", ".join(shown))
