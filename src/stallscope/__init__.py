"""Stallscope shows where the time of distributed training goes, and what fixing its causes saves.

For analysts, ``import stallscope as ss`` has the names below: runs and their analyses as DataFrames and
Plotly figures. They need ``stallscope[app]``. Training imports this package to record, so that they
load on first use; without them the package imports the standard library only.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import (
        Analysis,
        Comparison,
        Run,
        Scaling,
        analyse,
        compare,
        open_run,
        runs,
        scaling,
    )
    from .errors import StallscopeError
    from .notebook import Shown, show

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "Comparison",
    "Run",
    "Scaling",
    "Shown",
    "StallscopeError",
    "analyse",
    "compare",
    "open_run",
    "runs",
    "scaling",
    "show",
]

_OF_THE_NOTEBOOK = ("Shown", "show")


def __getattr__(name: str) -> Any:
    """Load a name of the Python interface.

    Raises:
        StallscopeError: if the app is not installed, or this Python is too old for it.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from .errors import MissingExtraError, StallscopeError

    if name == "StallscopeError":
        return StallscopeError
    if sys.version_info < (3, 11):
        raise StallscopeError(f"stallscope.{name} needs Python 3.11 or later, like the whole app")
    try:
        module = import_module(f"{__name__}.{'notebook' if name in _OF_THE_NOTEBOOK else 'api'}")
    except ModuleNotFoundError as error:
        raise MissingExtraError("app", error.name or "a package") from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
