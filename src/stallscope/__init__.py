"""Stallscope shows where the time of distributed training goes, and what fixing its causes saves.

For analysts, ``import stallscope as ss`` has the names below: runs and their analyses as DataFrames and
Plotly figures. They need ``stallscope[app]``. Training imports this package to record, so that they
load on first use; without them the package imports the standard library only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .api import (
        Analysis,
        Comparison,
        History,
        Run,
        Scaling,
        analyse,
        compare,
        history,
        open_run,
        runs,
        scaling,
    )
    from .errors import StallscopeError
    from .notebook import Shown, show

__version__ = "0.2.0"

__all__ = [
    "Analysis",
    "Comparison",
    "History",
    "Run",
    "Scaling",
    "Shown",
    "StallscopeError",
    "analyse",
    "compare",
    "history",
    "open_run",
    "runs",
    "scaling",
    "show",
]

_OF_THE_NOTEBOOK = ("Shown", "show")


def __getattr__(name: str) -> Any:
    """Load a name of the Python interface; without the app, calling it raises the error."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from .errors import MissingExtraError, StallscopeError

    if name == "StallscopeError":
        return StallscopeError
    if sys.version_info < (3, 11):
        return _unavailable(
            StallscopeError(f"stallscope.{name} needs Python 3.11 or later, like the whole app")
        )
    try:
        module = import_module(f"{__name__}.{'notebook' if name in _OF_THE_NOTEBOOK else 'api'}")
    except ModuleNotFoundError as error:
        return _unavailable(MissingExtraError("app", error.name or "a package"))
    return getattr(module, name)


def _unavailable(error: Exception) -> Callable[..., Any]:
    """Return what raises an error when it is called.

    Programs such as pickle look up names in all modules while they train, where nothing may be raised.
    """

    def unavailable(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return unavailable


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
