"""Score what reports name where ranks share a model: ranks, replicas, stages, experts and hosts.

docs/scorecard/sharded.md is written from these scores; docs/scorecard/sharded.json has a line per run.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cells import DIMENSIONS, HOSTS, Cell, mesh_shape, truth_path
from chapter import Score, Section, rounded
from page_tables import (
    NOTHING,
    RIGHT,
    Bar,
    alarm_bar,
    bar_table,
    of_all,
    page_of,
    percent,
    ratio,
    share_bar,
    table,
)
from real_scores import injected_ms
from sharded_plan import (
    PERCENTS,
    PERCENTS_OF_LINKS,
    TRAININGS,
    cells_of,
    is_unknowable,
    kind_of,
    ranks_of,
)

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

#: What the page calls the faults: of ranks that are slow, and others.
KINDS = {
    "rank": "slow rank",
    "input": "slow input",
    "replica": "slow replica",
    "stage": "slow stage",
}
OTHER_KINDS = {
    "routing": "one rank's expert gets more tokens",
    "rotating": "another rank's expert gets more tokens in each step",
    "link": "slow link",
    "device": "slow device",
}


def score_cell(out: Path, cell: Cell) -> Score:
    """Score a trained cell.

    Raises:
        StallscopeError: if its logs cannot be read.
    """
    (run,) = read(str(out / cell.name / "logs"))
    analysis = analyse(run)
    stragglers, verdict = analysis.stragglers, analysis.bottleneck
    score: Score = {
        "name": cell.name,
        "framework": cell.framework,
        "ranks": cell.ranks,
        "kind": kind_of(cell),
        "percent": cell.percent,
        "slow": list(cell.slow),
        "place": cell.place,
        "host": None if cell.host is None else f"h{cell.host + 1}",
        "named": sorted({rank for straggler in stragglers for rank in straggler.ranks}),
        "stages": sorted({straggler.stage for straggler in stragglers if straggler.ranks}),
        "longer_stage": _longer_stage(analysis),
        "slow_links": list(verdict.hosts) if verdict.cause == "network" else [],
        "routed": _routed(analysis),
        "injected_ms": _injected_ms(out, cell),
        "evidence": verdict.evidence,
        "step_ms": None if analysis.step is None else analysis.step.mean,
    }
    excesses = [straggler.excess_ms.value for straggler in stragglers if straggler.ranks]
    right = _is_right_of(score, cell)
    # Peers of an expert with more tokens get fewer, so the excess over them is not the injected one.
    known = right and excesses and score["kind"] in KINDS
    size = statistics.mean(excesses) / score["injected_ms"] if known else None
    return {**score, "right": right, "size": size}


def _is_right_of(score: Score, cell: Cell) -> bool:
    """Whether a report names what is slow, and nothing else."""
    kind, named, routed = score["kind"], score["named"], score["routed"]
    longer, hosts = score["longer_stage"], score["slow_links"]
    if kind == "stage":
        return longer == cell.place and not named
    if longer is not None or hosts != ([score["host"]] if _is_known_link(score) else []):
        return False
    if kind == "routing":
        return routed == list(cell.slow) and set(named) <= set(cell.slow)
    if kind == "rotating":
        return routed is not None and not named
    if kind in KINDS:
        return named == list(cell.slow) and set(score["stages"]) <= {cell.stage}
    return not named


def _is_known_link(score: Score) -> bool:
    return score["kind"] == "link" and not is_unknowable(score["kind"], score["framework"])


def _longer_stage(analysis: Analysis) -> int | None:
    """Return the stage that the report says to take layers from; None without one."""
    for finding in analysis.findings:
        if (finding.code, finding.severity) == ("pipeline_stages", "warning"):
            _, _, rest = finding.advice[0].action.partition(" from stage ")
            return int(rest.split()[0])
    return None


def _routed(analysis: Analysis) -> list[int] | None:
    """Return the ranks whose experts get more tokens; None if routing is not reported as uneven."""
    for cause in analysis.step_causes.causes:
        if cause.code == "uneven_routing":
            return sorted(cause.ranks)
    return None


def _injected_ms(out: Path, cell: Cell) -> float:
    """Return how much longer the fault takes on slow ranks, or makes steps with a slow link."""
    if cell.host is not None:
        paths = [truth_path(out / name, 0) for name in (cell.name, cell.baseline)]
        slow, clean = (json.loads(path.read_text())["step_ns"] for path in paths)
        return float(slow - clean) / 1e6
    return float(injected_ms(out, cell)[1:, list(cell.slow)].mean()) if cell.slow else 0.0


# -- the page ------------------------------------------------------------------------------------

_DIGITS = {
    **dict.fromkeys(("injected_ms", "step_ms"), 3),
    "size": 4,
}


def _kept(score: Score) -> Score:
    return rounded(score, _DIGITS)


def sharded_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on faults, on false alarms, and on faults that nothing recorded tells."""
    if not runs:
        return []
    what = (
        f"4 to 16 ranks, a fault of {min(PERCENTS)} % or more: rank, replica, stage or host right"
    )
    faults = _of(runs, *KINDS, *OTHER_KINDS)
    known = [run for run in faults if not is_unknowable(run["kind"], run["framework"])]
    unknown = [run for run in faults if is_unknowable(run["kind"], run["framework"])]
    return [
        share_bar(what, known, _is_right, RIGHT, _miss),
        alarm_bar("4 to 16 ranks, no fault: none is named", _of(runs, "clean"), _is_right, _miss),
        share_bar(
            "A slow device of JAX, a slow link of two hosts: none is named",
            unknown,
            _is_right,
            RIGHT,
            _miss,
        ),
    ]


def _of(runs: Sequence[Score], *kinds: str) -> list[Score]:
    return [run for run in runs if run["kind"] in kinds]


def _is_right(run: Score) -> bool:
    return bool(run["right"])


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = content["runs"]
    if not runs:
        return _NOT_TRAINED
    bars = sharded_bars(runs)
    text = _TEXT.format(
        runs=len(runs),
        planned=_planned(),
        cores=content["made_on"]["cores"],
        sizes=" and ".join(f"{size}" for size in PERCENTS),
    )
    parts = [text, bar_table(bars), "## By training", _table(runs), _COLUMNS]
    others = _table_of_others(runs)
    if others:
        parts += [_OTHERS, others]
    return page_of([part.strip() for part in parts], bars, _HOW)


def _planned() -> int:
    """Return the number of runs in the usual plan."""
    launches = [(framework, ranks) for framework in TRAININGS for ranks in ranks_of(framework)]
    return sum(len(cells_of(framework, ranks, PERCENTS)) for framework, ranks in launches)


def _groups(runs: Sequence[Score]) -> Iterator[tuple[str, list[Score]]]:
    """Yield the name and the runs of each training and number of ranks."""
    for name, title in TRAININGS.items():
        for ranks in ranks_of(name):
            group = [run for run in runs if (run["framework"], run["ranks"]) == (name, ranks)]
            if group:
                yield f"{title}, {_shape(name, ranks)}", group


def _table(runs: Sequence[Score]) -> str:
    rows = [(title, *_cells(group)) for title, group in _groups(runs)]
    for size in PERCENTS:
        group = [run for run in runs if run["percent"] in (0, size)]
        rows.append((f"all, {size} %", *_cells(group)))
    return table(("", "clean: named", *KINDS.values(), "size, found/true"), rows)


def _table_of_others(runs: Sequence[Score]) -> str:
    """Return the table of faults of experts, links and devices, by size."""
    sizes = (*PERCENTS, *PERCENTS_OF_LINKS)
    rows = []
    for (title, group), (kind, what) in itertools.product(_groups(runs), OTHER_KINDS.items()):
        of_kind = _of(group, kind)
        if of_kind:
            by_size = ([run for run in of_kind if run["percent"] == size] for size in sizes)
            shares = [of_all(some, _is_right) for some in by_size]
            rows.append((title, what, *shares, _longer_steps(of_kind)))
    head = ("", "fault", *(f"{size} %" for size in sizes), "steps longer by")
    return table(head, rows, texts=2) if rows else ""


def _longer_steps(runs: Sequence[Score]) -> str:
    """Return by how much slow links make steps longer, of the least and the most."""
    longer = [
        run["injected_ms"] / (run["step_ms"] - run["injected_ms"])
        for run in runs
        if run["host"] is not None
    ]
    return f"{percent(min(longer), 0)} to {percent(max(longer), 0)}" if longer else NOTHING


def _shape(framework: str, ranks: int) -> str:
    rows, columns = mesh_shape(framework, ranks)
    is_mesh = framework in DIMENSIONS or framework in HOSTS
    return f"{rows} × {columns} ranks" if is_mesh else f"{ranks} ranks"


def _cells(runs: Sequence[Score]) -> Iterator[str]:
    yield of_all(_of(runs, "clean"), lambda run: not _is_right(run))
    for kind in KINDS:
        yield of_all(_of(runs, kind), _is_right)
    sizes = [run["size"] for run in runs if run["size"] is not None]
    yield ratio(statistics.median(sizes) if sizes else None)


def _case(run: Score) -> str:
    title, kind = (
        f"{TRAININGS[run['framework']]}, {_shape(run['framework'], run['ranks'])}",
        run["kind"],
    )
    if kind == "clean":
        return f"{title}, no fault"
    if kind == "rotating":
        return f"{title}, {OTHER_KINDS[kind]}, +{run['percent']:g} %"
    if run["place"] is not None:
        who = f"{kind} {run['place']}"
    else:
        who = f"rank {run['slow'][0]}" if run["slow"] else f"host {run['host']}"
    what = {"routing": "tokens", "rank": "backward", "replica": "backward", "stage": "backward"}
    return f"{title}, {what.get(kind, kind)} of {who} +{run['percent']:g} %"


def _miss(run: Score) -> str:
    named = f"ranks {run['named']}" if run["named"] else "no rank"
    stage = "" if run["longer_stage"] is None else f", stage {run['longer_stage']}"
    links = f", the link of {', '.join(run['slow_links'])}" if run["slow_links"] else ""
    step = "" if run["step_ms"] is None else f" A step took {run['step_ms']:.0f} ms."
    if run["host"] is not None:
        step += f" The link makes steps {run['injected_ms']:.0f} ms longer."
    return f"{_case(run)}. Found: {named}{stage}{links}. {run['evidence']}{step}"


# -- sentences; they contain no results ----------------------------------------------------------

_NOT_TRAINED = """\
# Scorecard: models that ranks share

No run has been trained yet: run `make sharded`.
"""

_TEXT = """\
# Scorecard: models that ranks share

This page shows who is named where [ranks share a model](../recorders/parallelism.md), in {runs} of
{planned} planned trainings on 4 to 16 ranks that share {cores} cores, with gloo. One rank has a slow
backward pass or a slow loader, or all ranks of a replica or of a pipeline's stage have a slow backward
pass, by {sizes} % of the clean step. With JAX, host code is slow instead of the backward pass. Which
one is random; it measures the fault itself. A step computes little and waits for a simulated device.
There is no baseline. The [summary](../scorecard.md) has the other targets.
"""

_COLUMNS = """\
*Right*: these ranks alone are named, with this stage of the step; a slow pipeline stage is right if the
report proposes to move layers from it and names no rank. *Size*: the median of found / injected where a
rank or replica is right.
"""

_OTHERS = """\
## Experts, links and devices

Experts work as long as they have tokens; in each step, the fault adds up to twice its size. *Right* is
the cause `uneven_routing` with this rank, or with none if it changes, and no other rank. Without a
fault, tokens go to random ranks.

Hosts are namespaces of one machine with real links, as in [slow hosts](hosts.md). Over a slow link, what
its host sends in a step takes this share of a clean step; a part of that is hidden. *Right* is the
verdict on the network, with this host and no rank. FSDP2's messages are so small here that rates of fast
links are those of round trips, so a slow link that costs little is like them. Between two hosts there is
no other link to compare with, and JAX's compiled step does not show whose device is slow: there, *right*
is that no rank and no host is named.
"""

_HOW = """\
## How it is scored

`make sharded` trains all of this, in about an hour on an idle machine, in the environments of `make
deepspeed-env` and `make keras3-env`; hosts need root. It continues where it was interrupted.
[sharded.json](sharded.json) has every run. Some trainings shared the cores with other programs: those of
experts, of FSDP2 on hosts, and of JAX's replicas. Their clean steps are longer, and so are their faults.
The test of links was changed after a miss of these very runs: links that wait for a slow one hid it.
"""

SECTION = Section(
    "sharded",
    "Models that ranks share",
    lambda content: sharded_bars(content["runs"]),
    page,
    _kept,
)
