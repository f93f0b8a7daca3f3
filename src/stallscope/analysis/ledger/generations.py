"""Split a run's steps into generations, and build the ledger that the report is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.pivot import by_parts
from stallscope.run import Run

from ..steps.alignment import AlignedSteps, align
from .ledger import Ledger, build_ledger, concatenated, of_last_world
from .warmup import warm_up_steps


@dataclass(frozen=True)
class Generations:
    """All generations of a run and their ledger; every restart starts another generation."""

    worlds: Sequence[AlignedSteps]
    #: Per generation, its ledger, and per step whether it is warm-up.
    ledgers: Sequence[Ledger]
    warm: Sequence[npt.NDArray[np.bool_]]
    #: The steps of all generations with the same ranks as the last one; None if there are none.
    ledger: Ledger | None
    warm_up: npt.NDArray[np.bool_]
    #: The ledger without warm-up; None where nothing is left.
    steady: Ledger | None

    @classmethod
    def of(cls, run: Run) -> Generations:
        """Align a run's ranks and build the ledgers of its generations."""
        # A log without steps is not a generation.
        numbers = sorted(set().union(*by_parts(run.steps, _generations)))
        worlds = [align(run, number) for number in numbers]
        ledgers = [build_ledger(world) for world in worlds]
        warm = [warm_up_steps(ledger) for ledger in ledgers]
        kept = of_last_world(ledgers)
        ledger = concatenated([ledgers[index] for index in kept])
        warm_up = np.concatenate([np.zeros(0, bool), *(warm[index] for index in kept)])
        return cls(worlds, ledgers, warm, ledger, warm_up, _steady(ledger, warm_up))

    @property
    def last_world(self) -> AlignedSteps | None:
        """The generation whose ranks are reported: the last with a ledger, or the last of all."""
        pairs = zip(self.worlds, self.ledgers, strict=True)
        with_ledger = [world for world, ledger in pairs if len(ledger)]
        return next(reversed(with_ledger or self.worlds), None)


def _generations(part: pa.Table) -> set[int]:
    return set(pc.unique(part["generation"]).to_pylist())


def _steady(ledger: Ledger | None, warm_up: npt.NDArray[np.bool_]) -> Ledger | None:
    steady = None if ledger is None else ledger.take(~warm_up)
    return steady if steady is not None and len(steady) else None
