"""Compute probabilities and quantiles of common distributions; import scipy when it is needed.

``scipy.stats`` has the same functions, but takes a third of a second to import: most of the time of a
report on a small run.
"""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from .types import Floats

# Relative to the value: smaller steps of the search only change its last digit.
_SMALLEST_STEP = 1e-15
# The functions in C of scipy.special. The package also writes documentation for each of them, and
# imports all modules of numpy, which takes five times as long: a tenth of the time of a small report.
_IN_C = "scipy.special._ufuncs"


def normal_probability(z: npt.ArrayLike) -> Floats:
    """Return the probability that a standard normal value is at most ``z``."""
    return _floats(special.ndtr(z))


def normal_quantile(p: npt.ArrayLike) -> Floats:
    """Return the ``p``-quantile of the standard normal distribution."""
    return _floats(special.ndtri(p))


def mills_ratio(z: float) -> float:
    """Return the density of the standard normal distribution at ``z`` over the probability below it."""
    log_density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    return float(np.exp(log_density - special.log_ndtr(z)))


def mean_of_truncated(mean: float, limit: float, sd: float) -> float:
    """Return the mean of a normal distribution, given the mean of its values above a limit.

    Args:
        mean: the mean of the values above the limit; at least 0.3 standard deviations above it.
        limit: the limit.
        sd: the standard deviation of all values.
    """
    # Newton's method from above: the function is convex, so each step stays above its zero.
    whole = mean
    while True:
        z = (whole - limit) / sd
        ratio = mills_ratio(z)
        slope = 1 - ratio * (z + ratio)
        lower = whole - (whole + sd * ratio - mean) / slope
        if lower >= whole - _SMALLEST_STEP * abs(whole):
            return min(lower, whole)
        whole = lower


def student_quantile(p: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return the ``p``-quantile of Student's t with this many degrees of freedom."""
    return _floats(special.stdtrit(freedom, p))


def student_tail(t: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return the probability that Student's t with this many degrees of freedom is above ``t``."""
    return _floats(special.stdtr(freedom, np.negative(t)))


def chi_square_quantile(p: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return the ``p``-quantile of χ² with this many degrees of freedom."""
    return 2.0 * _floats(special.gammaincinv(np.divide(freedom, 2.0), p))


def binomial_tail(count: int, trials: int, p: float) -> float:
    """Return the probability that more than ``count`` of this many trials succeed."""
    if count < 0:
        return 1.0
    return 0.0 if count >= trials else float(special.bdtrc(count, trials, p))


def _floats(values: object) -> Floats:
    return np.asarray(values, np.float64)


# -- Import scipy on first use: machines that only run kernels do not need it ---------------------


class _LazyModule:
    """A module that is imported when an attribute is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


class _SpecialFunctions:
    """scipy.special, of which only the functions in C are imported while these are enough."""

    def __getattr__(self, name: str) -> Any:
        with _importing:
            module = sys.modules.get(_IN_C) or _import_in_c()
        if not hasattr(module, name):
            # Another version of scipy may have it elsewhere.
            module = importlib.import_module("scipy.special")
        return getattr(module, name)


# Another thread must not get the package of ``_import_in_c``.
_importing = threading.RLock()


def _import_in_c() -> ModuleType:
    """Import the functions in C of scipy.special without running the package around them."""
    name = _IN_C.rpartition(".")[0]
    spec = None if name in sys.modules else find_spec(name)
    if spec is None:
        return importlib.import_module(_IN_C)
    sys.modules[name] = module_from_spec(spec)
    try:
        return importlib.import_module(_IN_C)
    finally:
        # Whoever imports the package gets all of it.
        del sys.modules[name]


ndimage = _LazyModule("scipy.ndimage")


optimize = _LazyModule("scipy.optimize")


special = _SpecialFunctions()


scipy_stats = _LazyModule("scipy.stats")
