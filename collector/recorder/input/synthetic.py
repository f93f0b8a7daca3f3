"""A loader of one batch, for runs on synthetic data."""

from __future__ import annotations

from typing import Any, Iterable, Iterator


class RepeatedBatch:
    """Repeats one batch as often as a real loader has batches; without end where that has no length."""

    def __init__(self, real: Iterable[Any], batch: Any) -> None:
        self._real = real
        self._batch = batch

    def __len__(self) -> int:
        return len(self._real)  # type: ignore[arg-type]  # raises the real loader's error

    def __iter__(self) -> Iterator[Any]:
        try:
            batches = len(self)
        except TypeError:
            while True:
                yield self._batch
        for _ in range(batches):
            yield self._batch
