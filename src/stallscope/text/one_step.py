"""Round a single step's parts once, for its tables, chart and sentences."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger import CAUSES, STAGES
from stallscope.analysis.views.one_step import OneStep, RankInStep
from stallscope.formatting.sums import SumColumn

from .step_figures import RANK_PARTS, StepFigures


@dataclass(frozen=True)
class OneStepFigures:
    """A step of all ranks, with the digits of the run's mean step."""

    step: OneStep
    #: Both ledgers of this step.
    own: StepFigures
    #: The ledgers of the mean step; None without steady steps.
    usual: StepFigures | None

    @classmethod
    def of(cls, analysis: Analysis, step: OneStep) -> OneStepFigures:
        """Round a step of an analysed run."""
        ranks = {one.rank: one for one in step.ranks}
        last, reference = ranks[step.last], ranks[step.reference]
        parts = [getattr(last, name) for name in STAGES] + [step.allreduce]
        waits = [getattr(last, name) - getattr(reference, name) for name in STAGES]
        usual = StepFigures.of(analysis)
        digits = SumColumn.of(parts, step.total) if usual is None else usual.causes
        return cls(step, StepFigures(*digits.with_shares(parts, waits)), usual)

    @property
    def unit(self) -> str:
        return self.own.unit

    def rank(self, rank: RankInStep) -> SumColumn:
        """Round a rank's own step by name of RANK_PARTS; the parts of each rank add up to the step.

        The last rank's and the reference rank's parts are those of the two ledgers.
        """
        if rank.rank == self.step.last:
            own = dict(zip(CAUSES, self.own.causes.parts, strict=True)) | {"wait": 0.0}
        elif rank.rank == self.step.reference:
            own = dict(zip(ENTRIES, self.own.entries.parts, strict=True))
            own["wait"] = own.pop("imbalance")
        else:
            return self._other_rank([getattr(rank, name) for name in RANK_PARTS[:-1]])
        return self.own.causes.of_rounded([own[name] for name in RANK_PARTS])

    def _other_rank(self, parts: list[float]) -> SumColumn:
        """Round a rank's milliseconds until the allreduce: all ranks reach it together as printed."""
        causes, allreduce = self.own.causes, self.own.part("allreduce")
        # The difference is less than a digit: the largest part shows it least.
        off = (causes.total - allreduce) / causes.scale.factor - sum(parts)
        parts[parts.index(max(parts))] += off
        return causes.of_rounded([*causes.beside(parts).parts, allreduce])

    def late(self, rank: RankInStep) -> str:
        """Write how much later a rank is than the reference rank, with a sign, without unit."""
        wait = self.rank(rank).parts[RANK_PARTS.index("wait")]
        late = round(self.own.waits.total - wait, self.own.causes.decimals)
        return self.own.causes.signed(late)

    def amount(self, printed: float) -> str:
        """Write a rounded figure with its unit."""
        return self.own.causes.amount(printed)

    def more(self, printed: float) -> str:
        """Write a difference: ``61.8 ms more``, or less."""
        return f"{self.amount(abs(printed))} {'less' if printed < 0 else 'more'}"
