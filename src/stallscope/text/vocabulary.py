"""The words for people: titles of parts, names of stages in sentences, words for verdicts and fixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from stallscope.formatting.lists import capitalised, listed
from stallscope.words import (
    LOST_TIME,
    LOST_TIME_CAUSES,
    STAGES,
    Cause,
    FixKind,
    LedgerPart,
    Verdict,
    known,
)

if TYPE_CHECKING:
    from stallscope.analysis import Analysis

TITLES = {
    "input": "Input",
    "compute": "Compute",
    "other": "Other",
    # Of the typical rank, and of each rank: the same time under two names.
    "imbalance": "Waiting for slow ranks",
    "wait": "Waiting for slow ranks",
    "allreduce": "Exposed allreduce",
    "waiting_or_allreduce": "Waiting + allreduce",
    "startup": "Start-up",
    "warmup": "Warm-up",
    "steps": "Steps",
    "rest": "Rest of the step",
    "validation": "Validation",
    "checkpoint": "Checkpoints",
    "restart": "Restarts",
    "repeated": "Repeated steps",
    "stopped": "Hanging",
    "epoch_gap": "Between epochs",
    "unrecorded": "Not recorded",
    "input_waiting": "Waiting for slow input",
    "compute_waiting": "Waiting for slow compute",
    "other_waiting": "Waiting for work between steps",
    "input_stall": "Input stall",
    "scale": "Scale",
    "bandwidth": "Bandwidth",
    "latency": "Latency",
    "negotiation": "Negotiation",
    "fusion": "Fusion",
}

#: Names of the parts of a step in lists.
NAMES_IN_LISTS: dict[LedgerPart, str] = {
    "input": "input",
    "compute": "compute",
    "other": "other",
    "imbalance": "waiting for slow ranks",
    "allreduce": "exposed allreduce",
}
#: Names of the parts of a step in sentences.
NAMES: dict[LedgerPart, str] = {**NAMES_IN_LISTS, "other": "work between steps"}


class VerdictWords(NamedTuple):
    """A verdict that names no rank, in words; a fault of ranks has ``{cause}`` in its sentence."""

    title: str
    sentence: str
    #: Why the run is slow, in a few words.
    reason: str


VERDICT_WORDS: dict[Verdict, VerdictWords] = {
    "input": VerdictWords(
        "Input", "Input holds this run back: batches come late", "batches come late"
    ),
    "compute": VerdictWords(
        "Compute", "Compute is slower than in the baseline", "slower than in the baseline"
    ),
    "other": VerdictWords(
        "Between steps",
        "Work between steps holds this run back",
        "callbacks, logging or optimizer",
    ),
    "imbalance": VerdictWords(
        "Slow ranks",
        "{cause} varies from rank to rank and from step to step",
        "another rank is late in every step",
    ),
    "allreduce": VerdictWords(
        "Exposed allreduce",
        "Exposed allreduce holds this run back",
        "backward does not hide it",
    ),
    "balanced": VerdictWords(
        "Balanced", "Two faults cost about the same", "two faults cost about the same"
    ),
    "stopped": VerdictWords("Stopped", "The job has stopped", "no step finishes"),
    "insufficient_data": VerdictWords(
        "Insufficient data",
        "These logs cannot show what holds the run back",
        "the logs cannot show it",
    ),
}


def verdict_title(
    kind: Verdict, cause: Cause | None, ranks: Sequence[int], *, healthy: bool
) -> str:
    """Write a verdict in two words.

    Args:
        kind: the kind of the bottleneck.
        cause: its cause.
        ranks: the ranks that it names.
        healthy: whether it is no fault.
    """
    if healthy:
        return "No fault"
    if cause == "cores":
        return "Too few cores"
    if cause == "padding":
        return "Padding"
    lost = known(cause, LOST_TIME_CAUSES)
    if lost is not None:
        return capitalised(LOST_TIME[lost])
    if kind == "imbalance" and not ranks:
        return f"Varying {cause_name(cause)}"
    return VERDICT_WORDS[kind].title


def short_title(kind: Verdict, cause: Cause | None, ranks: Sequence[int], *, healthy: bool) -> str:
    """Write a verdict in a few words, with the ranks that it names; the arguments are the same."""
    if kind == "imbalance" and ranks:
        return f"Slow {listed('rank', ranks)}"
    return verdict_title(kind, cause, ranks, healthy=healthy)


def cause_name(cause: Cause | None) -> str:
    """Name the cause of an imbalance."""
    stage = known(cause, STAGES)
    return "work" if stage is None else NAMES[stage]


#: What the gains of fixes are about. Fixes of ranks, hosts and what users ask for are named by value.
FIX_NAMES: dict[FixKind, str] = {
    "input": NAMES["input"],
    "compute": NAMES["compute"],
    "other": NAMES["other"],
    "imbalance": "slow ranks",
    "allreduce": "allreduce",
    "variation": "variation between ranks",
    "all": "all of these",
}
#: The conditions of gains.
FIX_TITLES: dict[FixKind, str] = {
    "input": "Without input stalls",
    "compute": "With compute as in the baseline",
    "other": "Without extra work between steps",
    "allreduce": "If allreduce cost nothing",
    "variation": "With half the variation between ranks",
    "all": "With all of these fixed",
}


def title_of(name: str) -> str:
    """Name an entry for people."""
    return TITLES.get(name, name)


def entry_name(name: str, analysis: Analysis) -> str:
    """Name an entry as it is drawn: allreduce may include waiting for ranks without a log."""
    hidden = name == "allreduce" and analysis.waiting_unknown
    return "waiting_or_allreduce" if hidden else name


def entry_title(name: str, analysis: Analysis) -> str:
    """Title an entry of either ledger."""
    return TITLES[entry_name(name, analysis)]
