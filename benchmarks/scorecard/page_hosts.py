"""Write docs/scorecard/hosts.md: how the analysis finds and explains one slow host of several.

docs/scorecard/hosts.json has all scores: a line per run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import page_texts as texts
from hosts_plan import CLEAN, CLOCK, FAULTS, FRAMEWORKS, REASONS
from hosts_scoring import Score, clocks_within, host_right, why_right
from page_bars import RIGHT, Bar, bar_table
from page_tables import NOTHING, percent, share_interval, table
from score_lines import read_scores, write_together

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
_WHY_RIGHT = 0.9
_MOST_FALSE = 0.02


def bring_together(scores: Path, out: Path) -> None:
    """Write all scores as one file."""
    write_together(out, "runs", read_scores(scores))


def host_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on hosts, reasons, links, clean runs and clocks."""
    if not runs:
        return []
    slow = [run for run in runs if run["what"] in REASONS]
    links = [run for run in runs if run["what"] == "link"]
    clean = [run for run in runs if run["what"] in (CLEAN, CLOCK)]
    clocks = [within for run in runs for within in clocks_within(run)]
    return [
        _bar("A host of real jobs is slow: its rank or the host right", slow, host_right, RIGHT),
        _bar("A host of real jobs is slow: the first reason right", slow, why_right, _WHY_RIGHT),
        _bar("A host of real jobs has a slow link: the host right", links, host_right, RIGHT),
        Bar(
            "Real jobs on several hosts without a fault: a rank or host named",
            f"≤ {_MOST_FALSE * 100:g} % of runs",
            f"{sum(not host_right(run) for run in clean)} of {len(clean)} runs",
            sum(not host_right(run) for run in clean) <= _MOST_FALSE * len(clean),
            tuple(_miss(run) for run in clean if not host_right(run)),
        ),
        Bar(
            "Clocks of hosts in real jobs: error within its bound",
            f"≥ {RIGHT * 100:g} % of clocks",
            f"{sum(clocks)} of {len(clocks)} clocks",
            sum(clocks) >= RIGHT * len(clocks),
            tuple(_clock_miss(run) for run in runs if not all(clocks_within(run))),
        ),
    ]


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the data of ``bring_together``."""
    runs = content["runs"]
    if not runs:
        return texts.NO_HOSTS
    bars = host_bars(runs)
    # A run may miss several bars.
    missed = dict.fromkeys(f"- {miss}" for bar in bars for miss in bar.misses)
    parts = [
        texts.HOSTS.format(runs=len(runs), cores=content["made_on"]["cores"]),
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
    if missed:
        parts += ["## Misses", "\n".join(missed)]
    return "\n\n".join([*parts, texts.HOW_HOSTS]).rstrip() + "\n"


def _bar(what: str, runs: Sequence[Score], holds: Callable[[Score], bool], least: float) -> Bar:
    right = sum(map(holds, runs))
    if not runs:
        return Bar(what, f"≥ {least * 100:g} % of runs", NOTHING, None, ())
    return Bar(
        what,
        f"≥ {least * 100:g} % of runs",
        f"{percent(right / len(runs))} of {len(runs)} runs ({share_interval(right, len(runs))})",
        right >= least * len(runs),
        tuple(_miss(run) for run in runs if not holds(run)),
    )


def _row(what: str, runs: Sequence[Score]) -> tuple[str, ...]:
    cells = [
        _of_all([run for run in runs if run["framework"] == name], host_right)
        for name in FRAMEWORKS
    ]
    return (_TITLES[what], *cells, _of_all(runs, why_right) if what in REASONS else NOTHING)


def _of_all(runs: Sequence[Score], holds: Callable[[Score], bool]) -> str:
    return f"{sum(map(holds, runs))} of {len(runs)}" if runs else NOTHING


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
