"""Cards on how to record a baseline, and on runs that can serve as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc

from stallscope.formatting.lists import counted

from ..addresses import run_address
from ..store import ListedRun
from .basics import card, code_block, link_in_text, points

_KERAS = """\
from stallscope.keras import StepLogger, synthetic_like

model.fit(synthetic_like(data), callbacks=[StepLogger("logs/synthetic", synthetic=True)])"""
_TORCH = """\
from stallscope.torch import StepLogger, synthetic_like

with StepLogger("logs/synthetic", optimizer=optimizer, model=model, synthetic=True) as log:
    for batch in log.watch(synthetic_like(loader)):"""
_PROGRAMS = {"tensorflow": {"Keras": _KERAS}, "pytorch": {"PyTorch": _TORCH}}
_MOST_CHOICES = 12


def howto_card(framework: object) -> Any:
    """List the lines that record a baseline, for the run's framework if it is known."""
    programs = _PROGRAMS.get(str(framework), {"Keras": _KERAS, "PyTorch": _TORCH})
    return card(
        "Record a baseline",
        *(
            code_block(program, f"Recording a baseline with {name}", mb="xs")
            for name, program in programs.items()
        ),
        dmc.Text("The same on one rank also shows what scaling costs.", size="sm"),
        note="Run the same job again, on the same ranks, with these lines instead of the present ones; "
        "a few hundred steps are enough.",
    )


def choices_card(run_id: str, runs: Sequence[ListedRun], same_job: str | None) -> Any:
    """List open runs to compare this one with, the one of the same job first."""
    others = [run for run in runs if run.id != run_id]
    others.sort(key=lambda run: (run.id != same_job, not run.entry.synthetic))
    shown = others[:_MOST_CHOICES]
    choices = [
        [
            link_in_text(run.entry.name, run_address(run_id, run.id, page="baseline")),
            f": {_what(run, same_job)}",
        ]
        for run in shown
    ]
    more = f"{len(others) - len(shown):,} more are in the menu above."
    return card(
        "Compare with an open run",
        points(choices) if choices else dmc.Text("No other run is open.", size="sm", c="dimmed"),
        dmc.Text(more, size="sm", c="dimmed", mt="xs") if len(others) > len(shown) else None,
        className="choices",
    )


def _what(run: ListedRun, same_job: str | None) -> str:
    data = "synthetic data" if run.entry.synthetic else "real data"
    # 0 if the number is unknown.
    ranks = f", {counted(run.entry.ranks, 'rank')}" if run.entry.ranks else ""
    return data + ranks + (", the same job" if run.id == same_job else "")
