"""Figures of a job that hangs; they need no analysis of the steps."""

from __future__ import annotations

from collections.abc import Callable

from stallscope.analysis.stopped.stopped import Stopped
from stallscope.query.kinds import Kind
from stallscope.query.syntax import Name

from .found import Found, NamedFigure, Truth
from .quantities import Missing, Quantity


def _stopped(stopped: Stopped | None) -> Truth:
    if stopped is None:
        return Truth(False, "the job does not hang")
    return Truth(True, stopped.evidence.rstrip("."))


def _seconds(stopped: Stopped | None) -> Quantity:
    return Quantity(0.0 if stopped is None else stopped.seconds * 1e3, Kind.S)


def _of_analysis(kind: Kind, read: Callable[[Stopped | None], Found]) -> NamedFigure:
    return NamedFigure(kind, lambda analysis, _: read(analysis.stopped), of_baseline=False)


_READ: dict[str, tuple[Kind, Callable[[Stopped | None], Found]]] = {
    "stopped": (Kind.TRUTH, _stopped),
    "stopped.seconds": (Kind.S, _seconds),
}
STOPPED_FIGURES = {name: _of_analysis(kind, read) for name, (kind, read) in _READ.items()}


def is_of_stop(name: Name) -> bool:
    """Whether ``find_stopped`` alone gives the figure."""
    return not name.of_baseline and ".".join(name.path) in _READ


def read_of_stop(stopped: Stopped | None, name: Name) -> Found:
    """Read a figure for which ``is_of_stop`` holds."""
    if not is_of_stop(name):
        return Missing("it needs the analysis of the run")
    return _READ[".".join(name.path)][1](stopped)
