"""Write the six lines on a training that has ended.

Another process analyses the logs of all ranks, because the recorder imports only the standard library.
If that fails, the lines show rank 0's own measurements.
"""

from __future__ import annotations

import sys
from typing import List, Tuple

from ..subprocesses.limited_process import Limits, run_limited
from ..subprocesses.own_program import program
from .end_summary import Training
from .own_steps import PARTS, WAITING, OwnSteps

#: How long the end of the program is delayed at most. Rank 0 still has its own memory.
LIMITS = Limits(seconds=15.0, memory_bytes=1_000_000_000)
#: How long other ranks have to close their logs, within these limits.
WAIT_SECONDS = 3.0

# The app needs a newer Python than the recorder.
_PYTHON_OF_THE_APP = (3, 11)
_NEEDS = "this needs "
_INSTALL = "pip install 'stallscope[app]'"


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
    if sys.version_info < _PYTHON_OF_THE_APP:
        return [], "%sPython 3.11 or later" % _NEEDS
    source = "%s#%s" % (training.log_dir, training.run_id)
    words = (str(LIMITS.seconds), str(WAIT_SECONDS), source)
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
