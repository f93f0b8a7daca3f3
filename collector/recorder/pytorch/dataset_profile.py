"""Find the functions that a data set's ``__getitem__`` spends its time in.

Python reports every call while a profile function is set. This times the calls that a data set and its
wrappers make (data sets around data sets, and composed transforms). Calls inside timed ones are ignored,
but Python's reports still take time. So only the shares count, not the times.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from types import FrameType
from typing import Any, Dict, List, Optional, Set

_DATA_SET_METHODS = ("__getitem__", "__getitems__", "__iter__", "__next__")
# The most data sets around data sets.
_DEEPEST = 10
_WITHIN = ("<listcomp>", "<genexpr>")
# For a callable object, its class is the name.
_CALLED = ("__call__", "_wrapped_call_impl", "_call_impl", "forward")


class DatasetProfile:
    """A context that counts nanoseconds by the name of the called function."""

    def __init__(self, dataset: Any) -> None:
        self.spent: Dict[str, int] = {}
        self._datasets = _with_inner(dataset)
        # Frames of data sets and their wrappers, and the frame that is timed.
        self._wrappers: Set[FrameType] = set()
        self._timed: Any = None
        self._name = ""
        self._began = 0
        self._before: Any = None

    def __enter__(self) -> "DatasetProfile":
        self._before = sys.getprofile()
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(self._before)
        self._wrappers.clear()
        self._timed = None

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if self._timed is not None:
            if frame is self._timed and event in ("return", "c_return", "c_exception"):
                self._end_call()
        elif event == "call":
            self._start_call(frame)
        elif event == "return":
            self._wrappers.discard(frame)
        elif event == "c_call" and frame in self._wrappers:
            self._time(frame, getattr(function, "__qualname__", "") or repr(function))

    def _start_call(self, frame: FrameType) -> None:
        name = frame.f_code.co_name
        inside = frame.f_back in self._wrappers
        if name in _DATA_SET_METHODS or inside:
            owner = _owner(frame)
            if self._is_wrapper(name, owner, inside):
                self._wrappers.add(frame)
            elif inside:
                named = type(owner).__name__ if name in _CALLED else _qualified(frame)
                self._time(frame, named)

    def _is_wrapper(self, name: str, owner: Any, inside: bool) -> bool:
        if name in _DATA_SET_METHODS and any(owner is dataset for dataset in self._datasets):
            return True
        if not inside or any(owner is dataset for dataset in self._datasets):
            return False
        composed = isinstance(getattr(owner, "transforms", None), list)
        # torchvision's wrapper around the transforms of a sample and of its target.
        paired = hasattr(owner, "transform") and hasattr(owner, "target_transform")
        return name in _WITHIN or (name in _CALLED and (composed or paired))

    def _time(self, frame: FrameType, name: str) -> None:
        self._timed, self._name, self._began = frame, name, monotonic_ns()

    def _end_call(self) -> None:
        self.spent[self._name] = self.spent.get(self._name, 0) + monotonic_ns() - self._began
        self._timed = None


def _with_inner(dataset: Any) -> List[Any]:
    """Return the data set and the data sets that it wraps."""
    datasets = [dataset]
    while getattr(datasets[-1], "dataset", None) is not None and len(datasets) < _DEEPEST:
        datasets.append(datasets[-1].dataset)
    return datasets


def _owner(frame: FrameType) -> Optional[Any]:
    """Return the object of a method: its first argument."""
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names and frame.f_code.co_argcount else None


def _qualified(frame: FrameType) -> str:
    # Before Python 3.11 code objects have only the bare name.
    name: str = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
    return name.replace("<locals>.", "").replace("<lambda>", "lambda")
