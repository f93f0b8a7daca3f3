"""Record some steps of a very long run in full, and sum the others into rows per epoch.

All ranks keep the same steps without communicating: a hash of a block's number decides whether the
block of steps is kept. The hash has no period, so an event in every n-th step is as frequent in the kept
steps as in all. The step before a kept block is kept too: a step's time starts when the previous step
is reduced.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Union

from .format import SkippedRow, StepRow

#: Steps that are kept or left out together, so that the effect of one step on the next still shows.
BLOCK = 16
# A killed process loses at most this much of the sums.
_LONGEST_NS = 60 * 10**9
_MASK = 2**64 - 1


class Sampling(NamedTuple):
    """Which steps are recorded in full: the first ones, then one in ``one_in``."""

    full_steps: int
    one_in: int
    seed: int = 0

    def fact(self) -> Dict[str, Any]:
        return {**self._asdict(), "block": BLOCK}


def is_kept(block: int, sampling: Sampling) -> bool:
    """Return whether a block of steps is kept (the finaliser of splitmix64)."""
    x = (block + (sampling.seed + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) % sampling.one_in == 0


class Sampler:
    """Takes the rows of a rank one by one and returns the rows to write."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._block, self._kept = -1, True
        self._skipped: Optional[_Sums] = None

    def rows(self, row: StepRow) -> List[Union[StepRow, SkippedRow]]:
        """Return the rows that a step adds: earlier skipped steps, the step itself, both or none."""
        written: List[Union[StepRow, SkippedRow]] = []
        if self._skipped is not None and not self._skipped.goes_on_with(row):
            written += self.rest()
        if self._keeps(row.step):
            written.append(row)
        elif self._skipped is None:
            self._skipped = _Sums(row)
        else:
            self._skipped.add(row)
        return written

    def rest(self) -> List[SkippedRow]:
        """Return the steps skipped since the last such row."""
        skipped, self._skipped = self._skipped, None
        return [] if skipped is None else [skipped.row()]

    def _keeps(self, step: int) -> bool:
        if step < self._sampling.full_steps:
            return True
        return self._is_kept(step // BLOCK) or (
            (step + 1) % BLOCK == 0 and is_kept((step + 1) // BLOCK, self._sampling)
        )

    def _is_kept(self, block: int) -> bool:
        if block != self._block:
            self._block, self._kept = block, is_kept(block, self._sampling)
        return self._kept


class _Sums:
    """The sums of steps that are not written. A timestamp that one of them lacks has no sum."""

    def __init__(self, row: StepRow) -> None:
        self.epoch = row.epoch
        self._first = self._last = row
        self._steps = 0
        self._stages: List[Optional[int]] = [0, 0, 0]
        self._samples: Optional[int] = 0
        self.add(row)

    def goes_on_with(self, row: StepRow) -> bool:
        return row.epoch == self.epoch and row.end - self._first.begin < _LONGEST_NS

    def add(self, row: StepRow) -> None:
        self._last = row
        self._steps += 1
        for at, timestamp in enumerate((row.data, row.ready, row.reduced)):
            sum_ = self._stages[at]
            self._stages[at] = (
                None if sum_ is None or timestamp is None else sum_ + timestamp - row.begin
            )
        known = self._samples is not None and row.samples is not None
        self._samples = (self._samples or 0) + (row.samples or 0) if known else None

    def row(self) -> SkippedRow:
        data, ready, reduced = self._stages
        return SkippedRow(
            step=self._last.step + 1,
            epoch=self.epoch,
            begin=self._first.begin,
            end=self._last.end,
            steps=self._steps,
            samples=self._samples,
            data=data,
            ready=ready,
            reduced=reduced,
            clock=self._first.clock,
        )
