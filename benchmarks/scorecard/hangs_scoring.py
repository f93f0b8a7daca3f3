"""Score how a job that hangs is found: when, which rank, which stage, and false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hangs_plan import Case

from stallscope.analysis.stopped.stopped import Stopped

#: A line of the scores: the case and the findings.
Score = dict[str, Any]

#: How soon a job that hangs has to be found.
IN_TIME_SECONDS = 10.0


@dataclass(frozen=True)
class Look:
    """What the analysis reports at one moment."""

    #: Wall time in seconds.
    at: float
    #: Whether the report says that the job hangs.
    seen: bool = False
    #: The ranks that are missing.
    ranks: tuple[int, ...] = ()
    #: Their stages, in the same order.
    stages: tuple[str | None, ...] = ()
    waiting: tuple[int, ...] = ()
    #: Whether every rank is missing, waits, or is known to be silent.
    complete: bool = False
    evidence: str = ""

    @classmethod
    def of(cls, at: float, stopped: Stopped | None) -> Look:
        if stopped is None:
            return cls(at)
        return cls(
            at,
            True,
            tuple(rank.rank for rank in stopped.ranks),
            tuple(rank.stage for rank in stopped.ranks),
            stopped.waiting,
            bool(stopped.ranks) and not stopped.unreported,
            stopped.evidence,
        )


def score(case: Case, looks: Sequence[Look], moment: float, ended_itself: bool) -> Score:
    """Score one run.

    Args:
        looks: in order of time, including those before the moment.
        moment: the wall time of the fault.
        ended_itself: whether the job ended by itself.
    """
    after = [look for look in looks if look.at >= moment]
    seen = [look for look in after if look.seen]
    named = [look for look in seen if case.rank in look.ranks]
    last = after[-1] if after else Look(moment)
    return {
        **asdict(case),
        "name": case.name,
        "seen_s": round(seen[0].at - moment, 2) if seen else None,
        "named_s": round(named[0].at - moment, 2) if named else None,
        "found": list(last.ranks),
        "stages": list(last.stages),
        "waiting": list(last.waiting),
        "evidence": last.evidence,
        "others_named": sorted({rank for look in seen for rank in look.ranks} - {case.rank}),
        "alarm": next((look.evidence for look in looks if _is_alarm(case, look, moment)), None),
        "ended_itself": ended_itself,
        "looks": len(looks),
    }


def _is_alarm(case: Case, look: Look, moment: float) -> bool:
    return look.seen and (case.clean or look.at < moment)


def rank_right(score: Score) -> bool:
    """Return whether exactly the faulty rank is named at the end, and no other rank at any time."""
    return score["found"] == [score["rank"]] and not score["others_named"]


def stage_right(score: Score) -> bool:
    """Return whether the rank's stage is right; a killed or stopped rank has none."""
    return bool(score["stages"] == [expected_stage(score)])


def right(score: Score) -> bool:
    return rank_right(score) and stage_right(score)


def in_time(score: Score) -> bool:
    return score["seen_s"] is not None and score["seen_s"] <= IN_TIME_SECONDS


def expected_stage(score: Score) -> str | None:
    return Case(**{name: score[name] for name in Case.__dataclass_fields__}).stage
