"""Cards on how to record a baseline, and on runs that can serve as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc

from stallscope.catalogue.entry import Entry, circumstances
from stallscope.catalogue.matching import has_fault_as_baseline
from stallscope.formatting.lists import counted
from stallscope.text.verdicts import short_verdict

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
# What runs may say as a baseline of another one.
_FITS = "Same job on synthetic data"
_SYNTHETIC = "Other runs on synthetic data"
_REAL = "Runs on real data"
_FACTS = {
    _FITS: "same job on synthetic data",
    _SYNTHETIC: "synthetic data",
    _REAL: "real data",
}


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


def grouped_baselines(run_id: str, runs: Sequence[ListedRun]) -> dict[str, list[ListedRun]]:
    """Group the other runs by what they may say as a baseline: those that fit come first."""
    run = next((listed.entry for listed in runs if listed.id == run_id), None)
    groups: dict[str, list[ListedRun]] = {title: [] for title in (_FITS, _SYNTHETIC, _REAL)}
    for listed in runs:
        if listed.id == run_id:
            continue
        entry = listed.entry
        if not entry.synthetic:
            groups[_REAL].append(listed)
        else:
            fits = run is not None and _fits(entry, run)
            groups[_FITS if fits else _SYNTHETIC].append(listed)
    return {title: listed for title, listed in groups.items() if listed}


def _fits(entry: Entry, run: Entry) -> bool:
    """Whether a run is the same job in the same circumstances, and has no fault."""
    alike = [
        (each.job, each.ranks, *circumstances(len(each.hosts), each.facts)) for each in (entry, run)
    ]
    return alike[0] == alike[1] and not has_fault_as_baseline(entry)


def baseline_facts(listed: ListedRun) -> str:
    """Say what a run is as a baseline: its ranks, and its own fault if it has one."""
    # 0 if the number is unknown.
    facts = [counted(listed.entry.ranks, "rank")] if listed.entry.ranks else []
    if listed.verdict is None:
        facts.append("not analysed yet")
    elif listed.verdict.fault:
        facts.append(short_verdict(listed.verdict).lower())
    return ", ".join(facts)


def choices_card(run_id: str, runs: Sequence[ListedRun]) -> Any:
    """List open runs to compare this one with, those that fit first."""
    groups = grouped_baselines(run_id, runs)
    others = [(title, listed) for title, group in groups.items() for listed in group]
    choices = []
    for title, listed in others[:_MOST_CHOICES]:
        facts = ", ".join(filter(None, (_FACTS[title], baseline_facts(listed))))
        address = run_address(run_id, listed.id, page="baseline")
        choices.append([link_in_text(listed.entry.name, address), f": {facts}"])
    more = len(others) - len(choices)
    return card(
        "Compare with an open run",
        points(choices) if choices else dmc.Text("No other run is open.", size="sm", c="dimmed"),
        dmc.Text(f"{more:,} more are in the menu above.", size="sm", c="dimmed", mt="xs")
        if more
        else None,
        className="choices",
    )
