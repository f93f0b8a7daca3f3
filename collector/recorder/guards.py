"""Keep the recorder out of training's way: its errors, its patches, its clocks and its cost."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
import threading
import time
from time import monotonic_ns
from types import ModuleType
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

logger = logging.getLogger("stallscope")

# Long enough for a waiting thread to wake up and take Python's lock.
_MOMENT = 1e-5
# Rows that take a fraction of a millisecond; Python switches threads every 5 ms.
_IN_ONE_GO = 32
_this_thread = threading.local()
Method = Callable[..., None]
Item = TypeVar("Item")
#: Functions that patch modules, by the modules' names.
Patches = Dict[str, Callable[[ModuleType], None]]

# The scheduler interrupted readings further apart than this: take them again.
_INTERRUPTED_NS = 50_000
_ATTEMPTS = 3
# Linux slews both clocks alike, so their difference changes only when the wall clock is set.
# Twice the error of an interrupted reading, and well above the cost of reading.
JUMP_NS = 250_000
# The median covers this many of the latest iterations.
_MEDIAN_OF = 512


def never_raises(method: Method) -> Method:
    """Wrap a method of a recording: any error ends the recording with one warning (``fail``)."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # no error may reach training
            self.fail(error)

    return guarded


def while_running(method: Method) -> Method:
    """Like ``never_raises``, for a method that does nothing unless the recording runs (``running``)."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.running:
            try:
                method(self, *args, **kwargs)
            except Exception as error:  # no error may reach training
                self.fail(error)

    return guarded


def mark_background_thread() -> None:
    """Mark this thread as one of the recorder's own, so that ``yield_to_training`` pauses it."""
    _this_thread.is_background = True


def yield_to_training(done: int) -> None:
    """Give the training thread a chance to run; called after each of many pieces of work.

    Args:
        done: pieces of work done so far.
    """
    if done % _IN_ONE_GO == 0 and getattr(_this_thread, "is_background", False):
        time.sleep(_MOMENT)


def take_ready(
    waiting: Deque[Item], is_ready: Callable[[Item], bool] = lambda _: True
) -> Iterator[Item]:
    """Take items out of a queue, in order, up to the first that is not ready; yield to training."""
    done = 0
    while waiting and is_ready(waiting[0]):
        yield waiting.popleft()
        done += 1
        yield_to_training(done)


# -- Replace attributes of single instances, and restore them -------------------------------------


def patch(owner: Any, name: str, replacement: Any) -> Callable[[], None]:
    """Replace an attribute of an instance or a class; return the function that restores it."""
    # Functions of a class in C are bound by what its attributes hold, which is not what they return.
    had_own, original = name in own_attributes(owner), own_attributes(owner).get(name)
    setattr(owner, name, replacement)

    def restore() -> None:
        # Keep a replacement that was made since.
        if own_attributes(owner).get(name) is not replacement:
            return
        if had_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return restore


def own_attributes(owner: Any) -> Dict[str, Any]:
    """Return the attributes of the instance itself; none where its class has slots."""
    attributes: Dict[str, Any] = getattr(owner, "__dict__", {})
    return attributes


# -- Patch modules right after their import ------------------------------------------------------


def patch_when_imported(patches: Patches) -> None:
    """Patch modules that are imported already, and each other one right after its import.

    Args:
        patches: the functions that patch a module, by its name. Their errors are logged.
    """
    for name in patches:
        module = sys.modules.get(name)
        if module is not None:
            _patch_module(patches[name], module)
    sys.meta_path.insert(0, _ImportWatch(patches))


class _ImportWatch(importlib.abc.MetaPathFinder):
    """Patches modules right after they were imported, each once."""

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._searching: List[str] = []

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname not in self._patches or fullname in self._searching:
            return None
        self._searching.append(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError):
            return None
        finally:
            self._searching.remove(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, self._patches[fullname])
        return spec


class _PatchingLoader(importlib.abc.Loader):
    """Loads a module as another loader does, and patches it."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        module: Optional[ModuleType] = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        spec = module.__spec__
        if spec is not None:
            # What asks for the module's source or resources finds its own loader.
            spec.loader = module.__loader__ = self._loader
        _patch_module(self._patch, module)


def _patch_module(patch_it: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        patch_it(module)
    except Exception as error:  # no error may reach training
        logger.warning("stallscope: %s is not recorded: %r", module.__name__, error)


# -- Read the two clocks of a host together -------------------------------------------------------


def read_clocks() -> Tuple[int, int]:
    """Return monotonic time now, and wall time minus monotonic time, both in nanoseconds.

    The first gives durations; the second maps timestamps that exist only as wall time.
    """
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before <= _INTERRUPTED_NS:
            break
    return before, wall - (before + after) // 2


# -- Count what recording costs -------------------------------------------------------------------


class Cost:
    """The cost of one session; one thread at a time adds to each count."""

    __slots__ = ("_latest", "background_ns", "bytes", "flushes", "host_ns", "iterations")

    def __init__(self) -> None:
        #: Nanoseconds that the training thread spent in the recorder, and the number of iterations.
        self.host_ns = 0
        self.iterations = 0
        self._latest: List[int] = []
        #: Bytes written to the log, the number of writes, and nanoseconds of CPU time for them.
        self.bytes = 0
        self.flushes = 0
        self.background_ns = 0

    def count_iteration(self, nanoseconds: int) -> None:
        """Count the recorder's own work in one iteration of the training loop."""
        self.host_ns += nanoseconds
        if self.iterations < _MEDIAN_OF:
            self._latest.append(nanoseconds)
        else:
            self._latest[self.iterations % _MEDIAN_OF] = nanoseconds
        self.iterations += 1

    @contextlib.contextmanager
    def outside_iterations(self) -> Iterator[None]:
        """Count the recorder's own work on the training thread outside of any iteration."""
        begun = monotonic_ns()
        try:
            yield
        finally:
            self.host_ns += monotonic_ns() - begun

    def count_write(self, size: int) -> None:
        """Count a write of ``size`` bytes."""
        self.bytes += size
        self.flushes += 1

    def fact(self) -> Dict[str, Any]:
        """Return the counts so far, as the log shows them.

        Microseconds per iteration are null without an iteration. One-time work, and iterations in which
        another thread had the CPU core or Python's lock, make the mean larger than the median.
        """
        iterations = self.iterations
        return {
            "host_us_mean": round(self.host_ns / iterations / 1e3, 2) if iterations else None,
            "host_us_median": round(sorted(self._latest)[len(self._latest) // 2] / 1e3, 2)
            if iterations
            else None,
            "turns": iterations,
            "bytes": self.bytes,
            "flushes": self.flushes,
            "background_ms": round(self.background_ns / 1e6, 2),
        }
