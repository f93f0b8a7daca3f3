"""Figures of a job that hangs, and of logs that stop; they need no analysis of the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stallscope.analysis.stopped.stopped import Stopped
from stallscope.query.kinds import Kind
from stallscope.query.syntax import Name

from .found import Found, NamedFigure, Truth
from .quantities import Missing, Quantity


class LogProgress(NamedTuple):
    """The progress of a run and its logs."""

    #: How the job hangs; None if it does not.
    stopped: Stopped | None
    #: The time since the logs of an open run have grown; None if they were not watched.
    silent_s: float | None = None


def _stopped(progress: LogProgress) -> Truth:
    if progress.stopped is None:
        return Truth(False, "the job does not hang")
    return Truth(True, progress.stopped.evidence.rstrip("."))


def _stopped_seconds(progress: LogProgress) -> Quantity:
    return Quantity(0.0 if progress.stopped is None else progress.stopped.seconds * 1e3, Kind.S)


def _silent_seconds(progress: LogProgress) -> Found:
    if progress.silent_s is None:
        return Missing("only stallscope watch sees whether logs grow")
    return Quantity(progress.silent_s * 1e3, Kind.S)


def _of_analysis(kind: Kind, read: Callable[[LogProgress], Found]) -> NamedFigure:
    return NamedFigure(
        kind, lambda analysis, _: read(LogProgress(analysis.stopped)), of_baseline=False
    )


_READ: dict[str, tuple[Kind, Callable[[LogProgress], Found]]] = {
    "stopped": (Kind.TRUTH, _stopped),
    "stopped.seconds": (Kind.S, _stopped_seconds),
    "silent.seconds": (Kind.S, _silent_seconds),
}
PROGRESS_FIGURES = {name: _of_analysis(kind, read) for name, (kind, read) in _READ.items()}


def is_of_progress(name: Name) -> bool:
    """Return whether the figure needs no analysis."""
    return not name.of_baseline and ".".join(name.path) in _READ


def read_of_progress(progress: LogProgress, name: Name) -> Found:
    """Read a figure for which ``is_of_progress`` holds."""
    if not is_of_progress(name):
        return Missing("it needs the analysis of the run")
    return _READ[".".join(name.path)][1](progress)
