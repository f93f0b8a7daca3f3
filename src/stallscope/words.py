"""Declare the closed sets of words: parts of a step, verdicts and their causes, and fixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

Word = TypeVar("Word", bound=str)

#: A rank's own work in a step, numbered as in ``Ledger.cause``.
Stage = Literal["input", "compute", "other"]
STAGES: tuple[Stage, ...] = get_args(Stage)

#: The parts of a step by cause, which add up to the step.
PartByCause = Literal[Stage, "allreduce"]
CAUSES: tuple[PartByCause, ...] = get_args(PartByCause)

#: The entries of the ledger, in the order of a step.
LedgerPart = Literal[Stage, "imbalance", "allreduce"]
ENTRIES: tuple[LedgerPart, ...] = get_args(LedgerPart)

#: The parts of a rank's own step, in which it waits for slow ranks.
RankPart = Literal[Stage, "wait", "allreduce"]
RANK_PARTS: tuple[RankPart, ...] = get_args(RankPart)

#: The kind of a bottleneck.
Verdict = Literal[LedgerPart, "balanced", "stopped", "insufficient_data"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

#: Where a rank of a job that hangs is: in a stage, in the step's allreduce or in another collective.
HangPlace = Literal[Stage, "allreduce", "collective"]
#: Time that printed logs show to be lost: outside of steps, and in steps that take longer than others.
TimeOutsideSteps = Literal[
    "validation", "checkpoint", "validation_and_checkpoint", "unnamed", "repeated"
]
SlowSteps = Literal["period", "epoch_starts", "bursts", "changes"]
LostTime = Literal[TimeOutsideSteps, SlowSteps]
OUTSIDE_STEPS: tuple[TimeOutsideSteps, ...] = get_args(TimeOutsideSteps)
LOST_TIME_CAUSES: tuple[LostTime, ...] = get_args(LostTime)
#: The names of time that printed logs show to be lost, in the plural.
LOST_TIME: dict[LostTime, str] = {
    "validation": "evaluations",
    "checkpoint": "checkpoints",
    "validation_and_checkpoint": "evaluations and checkpoints",
    "unnamed": "pauses between lines",
    "repeated": "restarts and repeated steps",
    "period": "periodic slow steps",
    "epoch_starts": "slow starts of epochs",
    "bursts": "bursts of slow steps",
    "changes": "steps that became slower",
}
#: The cause of a bottleneck; that of a job that hangs is where all ranks are that have not arrived.
Cause = Literal[HangPlace, "network", "cores", "padding", LostTime]
VERDICT_CAUSES: tuple[Cause, ...] = get_args(Cause)

#: Intervals that recorders note: pauses within steps, and work on other threads, beside steps. With what
#: batches hold, they are all causes inside of steps.
PauseInStep = Literal["garbage_collection", "compilation", "saving"]
PAUSES_IN_STEPS: tuple[PauseInStep, ...] = get_args(PauseInStep)
#: Waits for Python's lock, which recorders sample.
INTERPRETER: Literal["interpreter"] = "interpreter"
NotedInStep = Literal[PauseInStep, "interpreter"]
WorkBesideSteps = Literal["background_saving", "background_evaluation"]
BESIDE_STEPS: tuple[WorkBesideSteps, ...] = get_args(WorkBesideSteps)
StepCauseCode = Literal[NotedInStep, WorkBesideSteps, "unequal_work", "uneven_routing", "padding"]
STEP_CAUSES: tuple[StepCauseCode, ...] = get_args(StepCauseCode)

#: What a job trains, from the finest unit on: tokens without padding, numbers in the first tensor of a
#: batch, and samples.
WorkUnit = Literal["token", "element", "sample"]
WORK_UNITS: tuple[WorkUnit, ...] = get_args(WorkUnit)

#: How a straggler is late: in all steps; ever more; at times; or at times, on another rank each time.
Pattern = Literal["persistent", "ramp", "bursts", "rotating"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)

# Fixes of single ranks and hosts, and answers to the user's questions.
_KindWithValue = Literal["rank", "host", "bandwidth", "ranks"]
_WITH_VALUE: tuple[_KindWithValue, ...] = get_args(_KindWithValue)
#: ``variation`` halves the variation between ranks, and ``all`` fixes every fault at once.
FixKind = Literal[LedgerPart, "variation", "all", _KindWithValue]
FIX_KINDS: tuple[FixKind, ...] = get_args(FixKind)


@dataclass(frozen=True)
class Fix:
    """A change whose gain is predicted: ``input``, ``rank:3``, ``host:NAME`` or ``bandwidth:2``."""

    kind: FixKind
    #: The rank, the host, the factor or the number of ranks; empty for other kinds.
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}" if self.kind in _WITH_VALUE else self.kind

    @classmethod
    def parse(cls, text: str) -> Fix:
        """Return the fix of this text.

        Raises:
            ValueError: if there is no such fix; the message lists them.
        """
        name, colon, value = text.partition(":")
        kind = known(name, FIX_KINDS)
        if kind is not None and bool(value) == bool(colon) == (kind in _WITH_VALUE):
            return cls(kind, value)
        kinds = (f"{kind}:…" if kind in _WITH_VALUE else kind for kind in FIX_KINDS)
        raise ValueError(f"{text!r} is no fix: it is one of {', '.join(kinds)}")


def known(text: str | None, words: Sequence[Word]) -> Word | None:
    """Return the word of a closed set that a text is; None if it is none of them."""
    return next((word for word in words if word == text), None)
