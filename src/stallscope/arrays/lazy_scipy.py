"""Import scipy on first use: machines that only run kernels do not need it."""

from __future__ import annotations

import importlib
from typing import Any


class _LazyModule:
    """A module that is imported when an attribute is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


ndimage = _LazyModule("scipy.ndimage")
optimize = _LazyModule("scipy.optimize")
special = _LazyModule("scipy.special")
scipy_stats = _LazyModule("scipy.stats")
