"""scipy, loaded when it is first used: machines that only run kernels need not have it."""

from __future__ import annotations

import importlib
from typing import Any


class _Later:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


fft = _Later("scipy.fft")
ndimage = _Later("scipy.ndimage")
optimize = _Later("scipy.optimize")
scipy_stats = _Later("scipy.stats")
