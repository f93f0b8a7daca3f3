"""Print a summary in six lines when the program ends, or the cell of a notebook, on rank 0."""

from __future__ import annotations

import atexit
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from ..job.world import World, ray_worker
from .own_steps import OwnSteps


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
        from .summary_lines import summary_lines

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
