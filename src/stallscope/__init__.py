"""Stallscope: where the time of distributed training goes, who causes it, what fixing it gains."""

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
    """A run in a notebook's cell: its report, and Plotly figures of it.

    Args:
        run: a run, or where one is, as the commands take it.
        baseline: the same job on synthetic data.

    Raises:
        StallscopeError: if the app is not installed, or there is no run that can be read.
    """
    # Workers import this package to record: nothing of the app may come along.
    from .errors import MissingExtraError, StallscopeError

    if sys.version_info < (3, 11):
        raise StallscopeError("stallscope.show needs Python 3.11 or later, as the whole app does")
    try:
        from .notebook import shown
    except ModuleNotFoundError as error:
        raise MissingExtraError("app", error.name or "a package") from error
    return shown(run, baseline)
