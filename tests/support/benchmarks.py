"""Import modules of benchmarks/, which are not part of the package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "benchmarks"


def benchmark(name: str, part: str = "") -> ModuleType:
    """Import a part of benchmarks/ with its neighbours on the path, as when it runs."""
    folder = str(FOLDER / part)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
