"""Collect facts that every framework has: host, CPU cores, learning rate."""

from __future__ import annotations

import collections
import inspect
import math
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, TypeVar

#: Why there are no timestamps where the user wants none.
SWITCHED_OFF = "switched off with stages=False"
#: The meaning of *ready* where only the end of a whole step is visible.
WHOLE_STEP = "end of the whole step, which updates the weights as well"
_Fact = TypeVar("_Fact")

# A schedule may change the rate in every epoch: keep the latest changes.
_MOST_CHANGES = 16


def known(read: Callable[[], _Fact]) -> Optional[_Fact]:
    """Read a fact; None where that fails: no fact is worth an error."""
    try:
        return read()
    except Exception:
        return None


def module_version(module: str) -> Optional[str]:
    """Return the version of an imported module."""
    version = getattr(sys.modules.get(module), "__version__", None)
    return None if version is None else str(version)


def versions_of(*modules: str) -> Dict[str, str]:
    """Return the versions of those modules that are imported."""
    versions = {name: module_version(name) for name in modules}
    return {name: version for name, version in versions.items() if version is not None}


def batches_in(loader: Any) -> Optional[int]:
    """Return the number of batches; None where it is unknown, as for endless loaders."""
    return known(lambda: len(loader))


def count_or_none(value: Any) -> Optional[int]:
    """Return a count; other types and negative numbers become None."""
    return value if isinstance(value, int) and value >= 0 else None


def host_facts() -> Dict[str, Any]:
    """Describe the host, its clock and its CPU cores."""
    return {
        "host": socket.gethostname(),
        "clock_domain": clock_domain(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "cpus_allowed": _cpus_allowed(),
    }


def timeline_is_on(env: Mapping[str, str]) -> bool:
    return bool(env.get("HOROVOD_TIMELINE"))


def horovod_transports() -> Optional[List[str]]:
    """Return the libraries that this process's Horovod can reduce with; None where unknown."""
    for module in ("horovod.tensorflow", "horovod.torch", "horovod.mxnet"):
        horovod = sys.modules.get(module)
        if horovod is None:
            continue
        try:
            return [name for name, built in _TRANSPORTS.items() if getattr(horovod, built)()]
        except Exception:  # older versions lack some of them
            continue
    return None


# Horovod's functions that return whether it was built with a library or runs on it.
_TRANSPORTS = {
    "nccl": "nccl_built",
    "ccl": "ccl_built",
    "mpi": "mpi_enabled",
    "gloo": "gloo_enabled",
}


def compression_name(compressor: Any) -> str:
    """Name a compressor of Horovod or a hook of DistributedDataParallel; ``none`` if it does nothing."""
    name = str(getattr(compressor, "__name__", type(compressor).__name__))
    name = name.replace("Compressor", "").lower()
    return "none" if name in _PLAIN_REDUCTIONS else name


# DistributedDataParallel's hook that reduces gradients uncompressed.
_PLAIN_REDUCTIONS = ("none", "allreduce_hook")


def largest_gathered(gradients: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Count sparse gradients, which are gathered instead of reduced, and describe the largest.

    Args:
        gradients: for each gradient its ``name``, the ``shape`` of the whole, the bytes per number
            (``itemsize``), and the ``rows`` that a rank sends per step, None where unknown.
    """

    def numbers(gradient: Dict[str, Any]) -> int:
        return math.prod(gradient["shape"])

    largest = sorted(gradients, key=numbers, reverse=True)[:_MOST_GATHERED]
    return {"count": len(gradients), "largest": largest}


# More names and sizes add no information.
_MOST_GATHERED = 4


def size_counts(sizes: Iterable[int]) -> List[List[int]]:
    """Count tensors by size: pairs ``[bytes, tensors]``, ascending, at most 200.

    With more sizes, the mean of similar ones replaces the rare ones. The total bytes and the number of
    tensors stay the same.
    """
    counts = collections.Counter(sizes)
    if len(counts) > _MOST_SIZES:
        # Half of the pairs are the most frequent sizes; each group of the others becomes two pairs.
        frequent = sorted(counts, key=lambda size: (-counts[size], size))[: _MOST_SIZES // 2]
        binned = collections.Counter({size: counts[size] for size in frequent})
        rare = sorted(set(counts) - set(frequent))
        per_group = -(-len(rare) // (_MOST_SIZES // 4))
        for start in range(0, len(rare), per_group):
            group = rare[start : start + per_group]
            tensors = sum(counts[size] for size in group)
            mean, larger = divmod(sum(size * counts[size] for size in group), tensors)
            binned.update({mean: tensors - larger, mean + 1: larger})
        counts = binned
    return [[size, count] for size, count in sorted(counts.items()) if count]


def gradient_sizes(sizes: Optional[Iterable[int]]) -> Dict[str, Any]:
    """Return facts of the gradients' bytes; None where these are unknown."""
    known_sizes = None if sizes is None else list(sizes)
    return {
        "gradient_bytes": None if known_sizes is None else sum(known_sizes),
        "gradient_sizes": None if known_sizes is None else size_counts(known_sizes),
    }


# More pairs would make the log's facts long.
_MOST_SIZES = 200


def clock_domain() -> Optional[str]:
    """Identify the monotonic clock: times of processes with the same one can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _cpus_allowed() -> Optional[int]:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None


# -- Find out whether learning rates are scaled by the number of ranks, and how they change -------


class LearningRates:
    """The learning rate at the start of each epoch, reported when it has changed."""

    def __init__(self) -> None:
        self._changes: List[Tuple[int, float]] = []

    def changed(self, epoch: int, rate: Optional[float]) -> Optional[List[Tuple[int, float]]]:
        """Return the latest changes by epoch if the rate changed in this epoch; otherwise None."""
        if rate is None or (self._changes and self._changes[-1][1] == rate):
            return None
        self._changes = [*self._changes[1 - _MOST_CHANGES :], (epoch, rate)]
        return self._changes


def optimizer_facts(
    optimizer: Any, argument: str, rate: Optional[float], size: int
) -> Dict[str, Any]:
    """Return the optimizer's kind and its learning rate; see ``scaled_by_ranks``."""
    return {
        "optimizer": None if optimizer is None else type(optimizer).__name__,
        "learning_rate": rate,
        "learning_rate_scaled": known(lambda: scaled_by_ranks(optimizer, argument, rate, size)),
    }


def scaled_by_ranks(
    optimizer: Any, argument: str, rate: Optional[float], size: int
) -> Optional[bool]:
    """Return whether the rate is the optimizer's default times the number of ranks.

    None where that is unknown: any other rate may have been tuned.

    Args:
        argument: the name of the rate in the optimizer's constructor.
    """
    default = _default_rate(type(optimizer), argument)
    if rate is None or size < 2 or default is None:
        return None
    for expected, scaled in ((default * size, True), (default, False)):
        if abs(rate - expected) <= 1e-6 * expected:
            return scaled
    return None


def _default_rate(optimizer: type, argument: str) -> Optional[float]:
    """Find the default in the first class that has one: Horovod's subclass has other arguments."""
    for base in optimizer.__mro__:
        constructor = vars(base).get("__init__")
        parameter = inspect.signature(constructor).parameters.get(argument) if constructor else None
        if parameter is not None:
            return parameter.default if isinstance(parameter.default, float) else None
    return None
