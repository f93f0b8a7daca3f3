"""Stallscope shows where the time of distributed training goes, and what fixing its causes saves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from .notebook import Shown
    from .run import Run

__version__ = "0.1.0"


def show(
    run: Run | str | PathLike[str], baseline: Run | str | PathLike[str] | None = None
) -> Shown:
    """Show a run in a notebook cell: its report, and Plotly figures.

    Args:
        run: a run, or a RUN argument of the commands.
        baseline: the same job on synthetic data.

    Raises:
        StallscopeError: if the app is not installed, or the run cannot be read.
    """
    # Training imports this package to record, so import the app only here.
    from .errors import MissingExtraError, StallscopeError

    if sys.version_info < (3, 11):
        raise StallscopeError("stallscope.show needs Python 3.11 or later, like the whole app")
    try:
        from .notebook import show_run
    except ModuleNotFoundError as error:
        raise MissingExtraError("app", error.name or "a package") from error
    return show_run(run, baseline)
