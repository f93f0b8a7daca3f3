"""A cache of limited size that computes every value once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Cache:
    """Values by key. The first caller computes a value; others wait only for the value they need.

    Args:
        max_size: the limit of all sizes together. The least recently used values are dropped first; the
            newest value stays even if it is larger.
        size_of: computes the size of a value.
    """

    def __init__(self, max_size: float, size_of: Callable[[Any], int] = lambda _: 1) -> None:
        self._max_size = max_size
        self._size_of = size_of
        self._lock = Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """The size of all values together."""
        return self._size

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key; errors of ``make`` are raised for all callers that wait for it."""
        with self._lock:
            entry = self._entries.get(key)
            missing = entry is None
            if entry is None:
                entry = self._entries[key] = _Entry()
            self._entries.move_to_end(key)
        if missing:
            self._fill(key, entry, make)
        value: T = entry.future.result()
        return value

    def discard(self, chosen: Callable[[Hashable], bool]) -> None:
        """Drop the values of chosen keys, except those that are still being computed."""
        with self._lock:
            for key, entry in list(self._entries.items()):
                if chosen(key) and entry.future.done():
                    self._drop(key)

    def _fill(self, key: Hashable, entry: _Entry, make: Callable[[], Any]) -> None:
        try:
            value = make()
            size = self._size_of(value)
        except BaseException as error:  # any error: callers must not wait forever
            with self._lock:
                del self._entries[key]  # later callers try again
            entry.future.set_exception(error)
            return
        with self._lock:
            entry.size = size
            self._size += size
            entry.future.set_result(value)
            self._evict(newest=key)

    def _evict(self, newest: Hashable) -> None:
        for key, entry in list(self._entries.items()):
            if self._size <= self._max_size:
                return
            # A value that is still being computed has no size yet, and callers wait for it.
            if key != newest and entry.future.done():
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        self._size -= self._entries.pop(key).size


class _Entry:
    """A value that is computed or being computed."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.size = 0
