"""Modules of benchmarks/, from where they are: they are no part of the package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks"


def benchmark(name: str, part: str = "") -> ModuleType:
    """The module of a part of benchmarks/, which finds its neighbours as it does when it runs."""
    folder = str(FOLDER / part)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
