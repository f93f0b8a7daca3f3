"""Score how a job that hangs is found: when, which rank, which stage, and false alarms.

docs/scorecard/hangs.md is written from these scores; docs/scorecard/hangs.json has a line per run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chapter import Score, Section
from hangs_plan import FAULTS, FRAMEWORKS, Case
from page_tables import (
    NOTHING,
    RIGHT,
    Bar,
    bar_table,
    of_all,
    page_of,
    percent,
    share_bar,
    table,
)

from stallscope.analysis.stopped.stopped import Stopped
from stallscope.formatting.lists import counted

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


# -- the page ------------------------------------------------------------------------------------

_FRAMEWORKS = {
    "torch": "PyTorch on Horovod",
    "keras": "Keras on Horovod",
    "ddp": "PyTorch DDP",
}
_FAULTS = {
    "loader": "the batch never comes",
    "backward": "backward never ends",
    "between": "stops between two steps",
    "collective": "calls a collective that no other rank calls",
    "kill": "is killed",
    "stop": "is suspended",
    "power": "loses its host",
}
_CLEAN = {
    "validation": "a validation of 20 s",
    "evaluation": "an unannounced evaluation of 20 s, with collectives",
    "checkpoint": "a checkpoint of 15 s on rank 0",
    "first step": "a first step of 15 s",
    "pause": "all ranks suspended for 20 s",
    "plain": "nothing unusual",
}


def hang_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on ranks, stages, time and false alarms."""
    faults, clean = _parts(runs)
    if not faults:
        return []
    late = tuple(_late(run) for run in faults if not in_time(run))
    alarms = tuple(f"{_case(run)}: {run['alarm']}" for run in runs if run["alarm"])
    in_time_share = percent(1 - len(late) / len(faults))
    return [
        share_bar(
            "A real job hangs: rank and stage right, no other rank named",
            faults,
            right,
            RIGHT,
            _miss,
        ),
        Bar(
            f"A real job hangs: seen within {IN_TIME_SECONDS:g} s",
            "all runs",
            f"{in_time_share} of {len(faults)} runs; {_seconds(faults)}",
            not late,
            late,
        ),
        Bar(
            "A real job makes progress: a false alarm",
            "no run",
            f"{len(alarms)} of {len(runs)} runs, {len(clean)} of which had no fault",
            not alarms,
            alarms,
        ),
    ]


def page(hangs: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = hangs["runs"]
    faults, clean = _parts(runs)
    if not faults:
        return _NO_HANGS
    bars = hang_bars(runs)
    parts = [
        _HANGS.format(runs=len(runs), cores=hangs["made_on"]["cores"]),
        bar_table(bars),
        "## By what happened\n\nRuns in which rank and stage are right, of all:",
        table(
            ("One rank …", *_FRAMEWORKS.values(), "seen after, median", "named after, median"),
            [_row(what, [run for run in faults if run["what"] == what]) for what in FAULTS],
        ),
        "By the number of hosts, each with its own clocks and network:",
        table(
            ("", "right", "seen after, median", "worst"),
            [
                _row_of_hosts("one host", [run for run in faults if run["hosts"] == 1]),
                _row_of_hosts("a host per rank", [run for run in faults if run["hosts"] > 1]),
            ],
        ),
        "False alarms in runs without a fault:",
        table(
            ("", "alarms"),
            [_clean_row(what, [run for run in clean if run["what"] == what]) for what in _CLEAN],
        ),
    ]
    return page_of(parts, bars, _HOW_HANGS)


def _parts(runs: Sequence[Score]) -> tuple[list[Score], list[Score]]:
    """Return the runs with a fault, and those without one."""
    return [run for run in runs if run["what"] in FAULTS], [
        run for run in runs if run["what"] not in FAULTS
    ]


def _row(what: str, runs: Sequence[Score]) -> tuple[str, ...]:
    cells = [
        of_all([run for run in runs if run["framework"] == name], right) for name in FRAMEWORKS
    ]
    return (_FAULTS[what], *cells, _median(runs, "seen_s"), _median(runs, "named_s"))


def _row_of_hosts(name: str, runs: Sequence[Score]) -> tuple[str, ...]:
    return name, of_all(runs, right), _median(runs, "seen_s"), _worst(runs)


def _clean_row(what: str, runs: Sequence[Score]) -> tuple[str, str]:
    return _CLEAN[what], of_all(runs, lambda run: run["alarm"] is not None)


def _median(runs: Sequence[Score], name: str) -> str:
    known = [run[name] for run in runs if run[name] is not None]
    return f"{statistics.median(known):.1f} s" if known else NOTHING


def _seconds(runs: Sequence[Score]) -> str:
    return f"median {_median(runs, 'seen_s')}, worst {_worst(runs)}"


def _worst(runs: Sequence[Score]) -> str:
    known = [run["seen_s"] for run in runs if run["seen_s"] is not None]
    return f"{max(known):.1f} s" if known else NOTHING


def _case(run: Score) -> str:
    what = {**_FAULTS, **_CLEAN}[run["what"]]
    who = "" if run["rank"] is None else f"rank {run['rank']} "
    ranks = f"{run['ranks']} ranks on {counted(run['hosts'], 'host')}"
    return f"{_FRAMEWORKS[run['framework']]}, {ranks}, {who}{what}"


def _miss(run: Score) -> str:
    kind = "wrong stage" if rank_right(run) else "wrong rank"
    return f"{_case(run)}: {kind}. {run['evidence'] or 'Nothing was reported.'}"


def _late(run: Score) -> str:
    seen = run["seen_s"]
    return f"{_case(run)}: {'never seen' if seen is None else f'seen after {seen:.1f} s'}."


# -- sentences; they contain no results ----------------------------------------------------------

_NO_HANGS = """\
# Scorecard: hangs

No job that hangs has been scored yet: run `make hangs`.
"""

_HANGS = """\
# Scorecard: hangs

This page shows how a job that hangs is found, in {runs} trainings on 2 and 4 ranks that share {cores}
cores. Some run on one host, and some on a host per rank. These hosts are namespaces of one machine:
each has its own network, processes and clocks, and they reach each other by real ssh. In most runs
something happens to one rank: the rank, the step and what happens are random. The logs and the
launcher's output are read twice a second, as `stallscope watch` does. The [summary](../scorecard.md)
has the other targets.
"""

_HOW_HANGS = """\
## How it is scored

Time counts from the moment before the rank hangs, as that rank notes it. *Seen*: the report says
that the job hangs. *Named*: the rank is among those that the others wait for. A run is right if that
rank alone is named at the end, in its stage, and no other rank at any time. A rank that is killed or
suspended, or loses its host, describes no stage; the report says that its log has stopped.

The recorder reports a step that has taken 5 s and ten times as long as usual. It writes once a second.

`make hangs` trains all of this, in about 40 minutes of two cores. It continues where it was
interrupted. [hangs.json](hangs.json) has every run.
"""

SECTION = Section("hangs", "Hangs", lambda content: hang_bars(content["runs"]), page)
