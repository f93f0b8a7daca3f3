"""Which functions the time of a data set goes to, as its ``__getitem__`` calls them.

Python itself tells of every call while a profile function is set. Only those that a data set makes are
looked at, and those of what it merely goes through: data sets around data sets, and transforms that are
composed of others. What goes on inside of them is left alone, but Python's telling of it takes time, so
that shares count, and not the times themselves.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from types import FrameType
from typing import Any, Dict, List, Optional, Set

_DATA_SETS_OWN = ("__getitem__", "__getitems__", "__iter__", "__next__")
# Data sets around data sets.
_DEEPEST = 10
_WITHIN = ("<listcomp>", "<genexpr>")
# Of an object that is called like a function, its class says what it is.
_CALLED = ("__call__", "_wrapped_call_impl", "_call_impl", "forward")


class Calls:
    """Nanoseconds by the name of what was called, while it is entered."""

    def __init__(self, dataset: Any) -> None:
        self.spent: Dict[str, int] = {}
        self._datasets = _with_inner(dataset)
        # Frames that are gone through, and the one that is timed.
        self._through: Set[FrameType] = set()
        self._timed: Any = None
        self._name = ""
        self._began = 0
        self._before: Any = None

    def __enter__(self) -> "Calls":
        self._before = sys.getprofile()
        sys.setprofile(self._told)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(self._before)
        self._through.clear()
        self._timed = None

    def _told(self, frame: FrameType, event: str, function: Any) -> None:
        if self._timed is not None:
            if frame is self._timed and event in ("return", "c_return", "c_exception"):
                self._ends()
        elif event == "call":
            self._begins(frame)
        elif event == "return":
            self._through.discard(frame)
        elif event == "c_call" and frame in self._through:
            self._time(frame, getattr(function, "__qualname__", "") or repr(function))

    def _begins(self, frame: FrameType) -> None:
        name = frame.f_code.co_name
        inside = frame.f_back in self._through
        if name in _DATA_SETS_OWN or inside:
            owner = _owner(frame)
            if self._is_gone_through(name, owner, inside):
                self._through.add(frame)
            elif inside:
                named = type(owner).__name__ if name in _CALLED else _qualified(frame)
                self._time(frame, named)

    def _is_gone_through(self, name: str, owner: Any, inside: bool) -> bool:
        if name in _DATA_SETS_OWN and any(owner is dataset for dataset in self._datasets):
            return True
        if not inside or any(owner is dataset for dataset in self._datasets):
            return False
        composed = isinstance(getattr(owner, "transforms", None), list)
        # What torchvision puts around the transforms of a sample and of its target.
        both = hasattr(owner, "transform") and hasattr(owner, "target_transform")
        return name in _WITHIN or (name in _CALLED and (composed or both))

    def _time(self, frame: FrameType, name: str) -> None:
        self._timed, self._name, self._began = frame, name, monotonic_ns()

    def _ends(self) -> None:
        self.spent[self._name] = self.spent.get(self._name, 0) + monotonic_ns() - self._began
        self._timed = None


def _with_inner(dataset: Any) -> List[Any]:
    """The data set, and those that it is put around."""
    found = [dataset]
    while getattr(found[-1], "dataset", None) is not None and len(found) < _DEEPEST:
        found.append(found[-1].dataset)
    return found


def _owner(frame: FrameType) -> Optional[Any]:
    """What a method belongs to: its first argument."""
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names and frame.f_code.co_argcount else None


def _qualified(frame: FrameType) -> str:
    # Before Python 3.11 the code knows no more than its bare name.
    name: str = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
    return name.replace("<locals>.", "").replace("<lambda>", "lambda")
