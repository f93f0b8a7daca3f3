"""Values that are made once and kept as long as there is room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Cache:
    """Values by key, made once by the first caller; callers wait only for their own.

    Args:
        most: how large all values together may be. The least recently used ones go first; the one that
            was made last stays, however large it is.
        size_of: how large a value is.
    """

    def __init__(self, most: float, size_of: Callable[[Any], int] = lambda _: 1) -> None:
        self._most = most
        self._size_of = size_of
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """How large all values are together."""
        return self._size

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; whatever ``make`` raises is raised for all who wait for it."""
        with self._lock:
            kept = self._kept.get(key)
            mine = kept is None
            if kept is None:
                kept = self._kept[key] = _Kept()
            self._kept.move_to_end(key)
        if mine:
            self._fill(key, kept, make)
        found: T = kept.future.result()
        return found

    def known(self, key: Hashable) -> Any:
        """The value of a key if it is there; None otherwise."""
        with self._lock:
            kept = self._kept.get(key)
            return kept.future.result() if kept is not None and kept.future.done() else None

    def forget(self, chosen: Callable[[Hashable], bool]) -> None:
        """Drop the values of the keys that are chosen; those that are still being made stay."""
        with self._lock:
            for key, kept in list(self._kept.items()):
                if chosen(key) and kept.future.done():
                    del self._kept[key]
                    self._size -= kept.size

    def _fill(self, key: Hashable, kept: _Kept, make: Callable[[], Any]) -> None:
        try:
            value = make()
            size = self._size_of(value)
        except BaseException as error:  # whatever it is, no caller may wait forever
            with self._lock:
                del self._kept[key]  # later callers try again
            kept.future.set_exception(error)
            return
        with self._lock:
            kept.size = size
            self._size += size
            kept.future.set_result(value)
            self._make_room(spared=key)

    def _make_room(self, spared: Hashable) -> None:
        for key, kept in list(self._kept.items()):
            if self._size <= self._most:
                return
            # What is still being made has no size yet, and others wait for it.
            if key != spared and kept.future.done():
                del self._kept[key]
                self._size -= kept.size


class _Kept:
    """A value, or the promise of one."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.size = 0
