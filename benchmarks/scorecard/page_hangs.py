"""Write docs/scorecard/hangs.md: how the analysis finds real jobs that hang.

docs/scorecard/hangs.json has all scores: a line per run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import page_texts as texts
from hangs_plan import FAULTS, FRAMEWORKS
from hangs_scoring import IN_TIME_SECONDS, Score, in_time, rank_right, right
from page_bars import RIGHT, Bar, bar_table
from page_tables import NOTHING, percent, share_interval, table
from score_lines import read_scores, write_together

from stallscope.formatting.lists import counted

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


def bring_together(scores: Path, out: Path) -> None:
    """Write all scores as one file."""
    write_together(out, "runs", read_scores(scores))


def hang_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on ranks, stages, time and false alarms."""
    faults, clean = _parts(runs)
    if not faults:
        return []
    wrong = tuple(_miss(run) for run in faults if not right(run))
    late = tuple(_late(run) for run in faults if not in_time(run))
    alarms = tuple(f"{_case(run)}: {run['alarm']}" for run in runs if run["alarm"])
    count, all_runs = len(faults) - len(wrong), len(faults)
    return [
        Bar(
            "A real job hangs: rank and stage right, no other rank named",
            f"≥ {RIGHT * 100:g} % of runs",
            f"{percent(count / all_runs)} of {all_runs} runs ({share_interval(count, all_runs)})",
            count >= RIGHT * all_runs,
            wrong,
        ),
        Bar(
            f"A real job hangs: seen within {IN_TIME_SECONDS:g} s",
            "all runs",
            f"{percent(1 - len(late) / all_runs)} of {all_runs} runs; {_seconds(faults)}",
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
    """Return the whole page from the data of ``bring_together``."""
    runs = hangs["runs"]
    faults, clean = _parts(runs)
    if not faults:
        return texts.NO_HANGS
    bars = hang_bars(runs)
    missed = [f"- {miss}" for bar in bars for miss in bar.misses]
    parts = [
        texts.HANGS.format(runs=len(runs), cores=hangs["made_on"]["cores"]),
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
    if missed:
        parts += ["## Misses", "\n".join(missed)]
    return "\n\n".join([*parts, texts.HOW_HANGS]).rstrip() + "\n"


def _parts(runs: Sequence[Score]) -> tuple[list[Score], list[Score]]:
    """Return the runs with a fault, and those without one."""
    return [run for run in runs if run["what"] in FAULTS], [
        run for run in runs if run["what"] not in FAULTS
    ]


def _row(what: str, runs: Sequence[Score]) -> tuple[str, ...]:
    cells = [_of_all([run for run in runs if run["framework"] == name]) for name in FRAMEWORKS]
    return (_FAULTS[what], *cells, _median(runs, "seen_s"), _median(runs, "named_s"))


def _row_of_hosts(name: str, runs: Sequence[Score]) -> tuple[str, ...]:
    return name, _of_all(runs), _median(runs, "seen_s"), _worst(runs)


def _of_all(runs: Sequence[Score]) -> str:
    return f"{sum(map(right, runs))} of {len(runs)}" if runs else NOTHING


def _clean_row(what: str, runs: Sequence[Score]) -> tuple[str, str]:
    alarms = sum(run["alarm"] is not None for run in runs)
    return _CLEAN[what], f"{alarms} of {len(runs)}" if runs else NOTHING


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
