"""The table of runs; the lines that need an analysis are filled in one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from ..addresses import run_address
from ..store import RunInfo

#: Kinds of cells that are filled in later.
VERDICT, STEP_TIME, THROUGHPUT = "run-verdict", "run-step-time", "run-throughput"
_HEAD = ("Run", "Verdict", "Step time", "Throughput", "Ranks", "Source")


def runs_table(runs: Sequence[RunInfo], baselines: Sequence[str | None]) -> Any:
    """The runs with links to their overviews, each against its own baseline where there is one."""
    if not runs:
        return dmc.Text("There are no runs here yet.", c="dimmed")
    return dmc.Table(
        [
            dmc.TableThead(dmc.TableTr([dmc.TableTh(title) for title in _HEAD])),
            dmc.TableTbody([_row(run, base) for run, base in zip(runs, baselines, strict=True)]),
        ],
        tabularNums=True,
        verticalSpacing="sm",
        className="runs",
    )


def cell_id(kind: str, run_id: Any) -> dict[str, Any]:
    """The id of a cell that is filled in later."""
    return {"type": kind, "run": run_id}


def _row(run: RunInfo, baseline_id: str | None) -> Any:
    name = [dmc.Anchor(run.name, href=run_address(run.id, baseline_id), refresh=False, fw=600)]
    if run.synthetic:
        name.append(dmc.Badge("synthetic", variant="light", color="gray", size="sm"))
    cells = [
        dmc.Group(name, gap="xs"),
        _pending(VERDICT, run.id),
        _pending(STEP_TIME, run.id),
        _pending(THROUGHPUT, run.id),
        f"{run.size:,}",
        html.Span(run.source, className="source"),
    ]
    return dmc.TableTr(
        [
            dmc.TableTd(cell, **{"data-label": label})
            for cell, label in zip(cells, _HEAD, strict=True)
        ]
    )


def _pending(kind: str, run_id: str) -> Any:
    return html.Span("…", id=cell_id(kind, run_id))
