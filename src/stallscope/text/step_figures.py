"""Round a step's parts once, for tables, charts and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger_figures import RankSummary
from stallscope.analysis.result import GenerationSummary
from stallscope.arrays.types import Floats
from stallscope.formatting.numbers import Interval
from stallscope.formatting.sums import SumColumn
from stallscope.words import CAUSES, RANK_PARTS, STAGES, PartByCause, RankPart

if TYPE_CHECKING:
    from stallscope.analysis.views.one_step import OneStep, RankInStep


@dataclass(frozen=True)
class StepFigures:
    """Both ledgers of a run in one unit and with the same digits.

    Both are rounded together, so that they agree as printed, and both add up to the step.
    """

    #: One part per entry of CAUSES; the total is the step.
    causes: SumColumn
    #: The waiting of the other ranks, per entry of STAGES; the total is the imbalance.
    waits: SumColumn

    @classmethod
    def of(cls, analysis: Analysis | GenerationSummary) -> StepFigures | None:
        """Round a run's or a generation's ledgers to the digits of its step. None without stages."""
        step = analysis.step
        if step is None or not analysis.by_cause:
            return None
        digits = SumColumn.of(_causes(analysis), step.mean, step.ci95)
        return cls(*digits.with_shares(_causes(analysis), _waits(analysis)))

    def in_same_digits(self, analysis: Analysis | None, factor: float = 1.0) -> StepFigures | None:
        """Round another run's ledgers, times a factor, to these digits. None without its stages."""
        if analysis is None or analysis.step is None or not analysis.by_cause:
            return None
        scaled = ([ms * factor for ms in parts(analysis)] for parts in (_causes, _waits))
        return StepFigures(*self.causes.with_shares(*scaled))

    @classmethod
    def of_both(
        cls, first: Analysis, second: Analysis | None, factor: float = 1.0
    ) -> tuple[StepFigures, StepFigures] | None:
        """Round two runs' ledgers to the digits of the first one's step. None without both.

        Args:
            first: the run that has the digits.
            second: the other run.
            factor: what the second run's times are multiplied by.
        """
        figures = cls.of(first)
        second_figures = None if figures is None else figures.in_same_digits(second, factor)
        return None if figures is None or second_figures is None else (figures, second_figures)

    @property
    def entries(self) -> SumColumn:
        """Return the ledger with imbalance: one part per entry of ENTRIES."""
        waits: dict[str, float] = dict(zip(STAGES, self.waits.parts, strict=True))
        rounded: dict[str, float] = {
            name: ms - waits.get(name, 0.0)
            for name, ms in zip(CAUSES, self.causes.parts, strict=True)
        }
        rounded["imbalance"] = self.waits.total
        return self.causes.of_rounded([rounded[name] for name in ENTRIES])

    def part(self, name: PartByCause) -> float:
        """Return an entry of the ledger by cause."""
        return self.causes.parts[CAUSES.index(name)]

    def waiting(self, name: PartByCause) -> float:
        """Return how much of a cause others wait for; 0 if the critical rank's stage is shorter."""
        if name not in STAGES:
            return 0.0
        return min(max(self.waits.parts[STAGES.index(name)], 0.0), max(self.part(name), 0.0))

    def rounded(self, ms: float) -> float:
        """Round any other milliseconds, such as another run's step, to these digits."""
        return self.causes.in_same_digits([ms]).total

    def scale_loss(self, analysis: Analysis) -> float | None:
        """Return how much longer the baseline's step is than on one rank. None without both."""
        base, single = analysis.baseline, analysis.single
        if base is None or base.step is None or single is None or single.step is None:
            return None
        steps = self.rounded(base.step.mean), self.rounded(single.step.mean)
        return round(steps[0] - steps[1], self.causes.decimals)

    def of_ranks(self, ranks: Sequence[RankSummary]) -> list[dict[RankPart, float]]:
        """Round each rank's own step by name of RANK_PARTS; empty without its stages."""
        parts = np.array(
            [[getattr(rank, f"{name}_ms") for name in RANK_PARTS] for rank in ranks], np.float64
        )
        known = np.isfinite(parts)
        rounded = self._of_rows(np.where(known, parts, 0.0)).tolist()
        # A single rank's log of many: its stages are the step's.
        stages: dict[RankPart, float] = {name: self.part(name) for name in STAGES}
        complete, partly = (whether(known, axis=1).tolist() for whether in (np.all, np.any))
        return [
            dict(zip(RANK_PARTS, row, strict=True))
            if complete[at]
            else (stages if partly[at] else {})
            for at, row in enumerate(rounded)
        ]

    def of_parts(self, parts: Sequence[float]) -> SumColumn:
        """Round milliseconds per name of RANK_PARTS; all ranks share the last one."""
        return self.causes.of_rounded(self._of_rows(np.array([parts], np.float64))[0].tolist())

    def _of_rows(self, parts: Floats) -> Floats:
        """Round ranks × RANK_PARTS: the parts of each rank add up to its rounded step."""
        allreduce = self.part("allreduce")
        steps = np.round(parts.sum(axis=1) * self.causes.scale.factor, self.causes.decimals)
        return _until_allreduce(self.causes, parts[:, :-1], steps - allreduce, allreduce)

    def text(self, value: float, ci95: Interval | None = None) -> str:
        """Write a part without its unit."""
        return self.causes.text(value, ci95)

    @property
    def unit(self) -> str:
        return self.causes.scale.unit


def _causes(analysis: Analysis | GenerationSummary) -> list[float]:
    return [entry.ms for entry in analysis.by_cause]


def _waits(analysis: Analysis | GenerationSummary) -> list[float]:
    return [entry.waiting_ms or 0.0 for entry in analysis.by_cause if entry.name in STAGES]


def _until_allreduce(digits: SumColumn, parts: Floats, sums: Floats, allreduce: float) -> Floats:
    """Round each rank's parts to a rounded sum, and append the allreduce that all ranks share."""
    parts = parts.copy()
    # The difference is less than a digit: the largest part absorbs it.
    parts[np.arange(len(parts)), parts.argmax(axis=1)] += sums / digits.scale.factor - parts.sum(
        axis=1
    )
    shared = np.full((len(parts), 1), allreduce)
    return np.hstack([digits.rows_in_same_digits(parts), shared])


@dataclass(frozen=True)
class OneStepFigures:
    """A step of all ranks, with the digits of the run's mean step."""

    step: OneStep
    #: Both ledgers of this step.
    ledgers: StepFigures
    #: The ledgers of its generation's mean step; None without steady steps.
    mean: StepFigures | None

    @classmethod
    def of(cls, analysis: Analysis, step: OneStep) -> OneStepFigures:
        """Round a step of an analysed run."""
        ranks = {rank.rank: rank for rank in step.ranks}
        last, reference = ranks[step.last], ranks[step.reference]
        parts = [getattr(last, name) for name in STAGES] + [step.allreduce]
        waits = [getattr(last, name) - getattr(reference, name) for name in STAGES]
        by_number = {generation.number: generation for generation in analysis.generations}
        mean = StepFigures.of(by_number.get(step.generation, analysis))
        digits = SumColumn.of(parts, step.total) if mean is None else mean.causes
        return cls(step, StepFigures(*digits.with_shares(parts, waits)), mean)

    @property
    def unit(self) -> str:
        return self.ledgers.unit

    def ranks(self, ranks: Sequence[RankInStep]) -> list[SumColumn]:
        """Round each rank's own step by name of RANK_PARTS; the parts of each add up to the step.

        The last rank's and the reference rank's parts are those of the two ledgers.
        """
        parts = [[getattr(rank, name) for name in RANK_PARTS[:-1]] for rank in ranks]
        rounded = self._of_rows(np.array(parts, np.float64)).tolist()
        causes: dict[str, float] = dict(zip(CAUSES, self.ledgers.causes.parts, strict=True))
        causes["wait"] = 0.0
        entries: dict[str, float] = dict(zip(ENTRIES, self.ledgers.entries.parts, strict=True))
        entries["wait"] = entries.pop("imbalance")
        known = {self.step.reference: entries, self.step.last: causes}
        for at, rank in enumerate(ranks):
            if rank.rank in known:
                rounded[at] = [known[rank.rank][name] for name in RANK_PARTS]
        return [self.ledgers.causes.with_parts(row) for row in rounded]

    def _of_rows(self, parts: Floats) -> Floats:
        """Round ranks' milliseconds until the allreduce: all reach it together as printed."""
        causes, allreduce = self.ledgers.causes, self.ledgers.part("allreduce")
        until = np.full(len(parts), causes.total - allreduce)
        return _until_allreduce(causes, parts, until, allreduce)

    def late(self, rank: SumColumn) -> str:
        """Write how much later a rank is than the reference rank, with a sign, without unit.

        Args:
            rank: its own step, as ``ranks`` returns it.
        """
        wait = rank.parts[RANK_PARTS.index("wait")]
        late = round(self.ledgers.waits.total - wait, self.ledgers.causes.decimals)
        return self.ledgers.causes.signed(late)

    def amount(self, printed: float) -> str:
        """Write a rounded figure with its unit."""
        return self.ledgers.causes.amount(printed)

    def more(self, printed: float) -> str:
        """Write a difference: ``61.8 ms more``, or less."""
        return f"{self.amount(abs(printed))} {'less' if printed < 0 else 'more'}"
