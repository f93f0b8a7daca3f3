"""The head of a run's pages: its name, its facts, the choice of a baseline, and how to record one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, html

from stallscope.analysis import Analysis
from stallscope.catalogue.entry import Entry, circumstances
from stallscope.catalogue.listing import has_fault_as_baseline
from stallscope.formatting.lists import counted
from stallscope.run import Run
from stallscope.text.job_words import ranks_and_hosts, steps_and_epochs
from stallscope.text.verdicts import short_verdict

from ..addresses import ADDRESS, compare_address, run_address
from ..downloads import DOWNLOADS, download_address
from ..run_folder import is_recording, log_silence_s, silence_sentence
from ..store import ListedRun
from .basics import add_script, aria, card, code_block, link, link_in_text, points

_BASELINE_SELECT = "baseline"

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


def run_head(
    analysis: Analysis,
    run_id: str,
    baseline_id: str | None,
    runs: Sequence[ListedRun],
    read_at: datetime | None = None,
    reruns: Sequence[str] = (),
    *,
    with_status: bool = True,
) -> Any:
    """Show name, facts, the choice of a baseline, and links to downloads.

    Args:
        analysis: of the run.
        run_id: its id.
        baseline_id: of the baseline.
        runs: possible baselines.
        read_at: when a run that is being recorded was last read, in UTC.
        reruns: ids of this and earlier runs of the job, the oldest first.
        with_status: whether to say that the run is being recorded, which a page may do itself.
    """
    run = analysis.run
    silence_s = log_silence_s(run)
    return dmc.Group(
        [
            dmc.Box(
                [
                    dmc.Group(
                        [
                            dmc.Title(run.name, order=1, size="h2", tabIndex=-1),
                            *_badges(run, silence_s, with_status=with_status),
                        ],
                        gap="sm",
                    ),
                    dmc.Text(_facts(analysis), c="dimmed", size="sm", mt=4),
                    dmc.Text(run.source, c="dimmed", size="sm", className="source"),
                    _as_of(run, read_at, silence_s) if with_status else None,
                ],
                flex=1,
                miw=280,
            ),
            dmc.Stack(
                [
                    _baseline_select(run_id, baseline_id, runs),
                    _actions(run_id, baseline_id, has_steps=bool(run.rows)),
                    _over_time(reruns),
                ],
                gap=6,
                w={"base": "100%", "xs": 260},
            ),
        ],
        justify="space-between",
        align="flex-start",
        gap="lg",
    )


def add_run_head_callbacks(app: Dash) -> None:
    """Let the choice of a baseline change the address, and with it the page."""

    # The browser knows the current view: timelines change the address without Dash.
    add_script(
        app,
        "stallscope.chooseBaseline",
        Output(ADDRESS, "search"),
        Input(_BASELINE_SELECT, "value"),
        at_start=False,
    )


def recording_badge(silence_s: float | None) -> Any:
    """Show whether logs without an end still grow."""
    if is_recording(silence_s):
        return dmc.Badge("recording", variant="light", color="blue")
    return dmc.Badge("no end in the logs", variant="light", color="orange")


def _badges(run: Run, silence_s: float | None, *, with_status: bool) -> list[Any]:
    badges = []
    if run.synthetic:
        badges.append(dmc.Badge("synthetic data", variant="light", color="gray"))
    if with_status and (run.lacks_end or is_recording(silence_s)):
        badges.append(recording_badge(silence_s))
    return badges


def _as_of(run: Run, read_at: datetime | None, silence_s: float | None) -> Any:
    if run.status == "completed":
        return None
    if silence_s is not None and not is_recording(silence_s):
        if not run.lacks_end:
            return None
        sentence = silence_sentence(silence_s)
    elif read_at is None:
        return None
    else:
        sentence = (
            f"As of {read_at:%H:%M:%S} UTC: "
            "a run that grows is read again when a page of it is opened."
        )
    return dmc.Text(sentence, c="dimmed", size="sm")


def _over_time(reruns: Sequence[str]) -> Any:
    if len(reruns) < 2:
        return None
    title = f"Compare the last {len(reruns)} runs of this job"
    return link(title, compare_address(*reruns), size="sm")


def _facts(analysis: Analysis) -> str:
    run = analysis.run
    facts = [
        ranks_and_hosts(analysis),
        steps_and_epochs(analysis),
        # Other programs' logs name the program, and seldom the framework.
        str(run.fact("framework") or run.fact("known_from") or "framework not recorded"),
    ]
    model = run.fact("model")
    if model:
        facts.append(f"model {model}")
    if run.started_at is not None:
        facts.append(f"started {run.started_at:%Y-%m-%d %H:%M} UTC")
    return " · ".join(facts)


def _baseline_select(run_id: str, baseline_id: str | None, runs: Sequence[ListedRun]) -> Any:
    others = [run for run in runs if run.id != run_id]
    # By default, Mantine's button works with the mouse only.
    clear: Any = {"tabIndex": 0, **aria(label="No baseline", hidden="false")}
    return dmc.Select(
        id=_BASELINE_SELECT,
        label="Baseline",
        placeholder="Compare with…" if others else "No other run is open",
        data=_options(run_id, runs),
        value=baseline_id,
        clearable=True,
        searchable=True,
        disabled=not others,
        nothingFoundMessage="No such run",
        clearButtonProps=clear,
    )


def _actions(run_id: str, baseline_id: str | None, *, has_steps: bool) -> Any:
    """Link to downloads, and copy the address; without recorded steps there is no trace."""
    links = [
        html.A(
            download.words,
            href=download_address(run_id, baseline_id, download),
            target="_blank" if download.inline else None,
            rel="noopener" if download.inline else None,
            title=download.title,
            className="run-action",
        )
        for download in DOWNLOADS
        if has_steps or not download.of_steps
    ]
    data: Any = {"data-copy": "address", **aria(live="polite")}
    copy = html.Button(
        "Copy address",
        title="Copy this page's address with everything chosen on it",
        className="run-action",
        **data,
    )
    return html.Div(
        [*links, copy],
        className="run-actions",
        role="group",
        **aria(label="Save or share this run"),
    )


def _options(run_id: str, runs: Sequence[ListedRun]) -> list[dict[str, Any]]:
    return [
        {"group": title, "items": [{"value": run.id, "label": _label(run, runs)} for run in group]}
        for title, group in grouped_baselines(run_id, runs).items()
    ]


def _label(run: ListedRun, runs: Sequence[ListedRun]) -> str:
    """Name a run with its ranks and its fault, and with its id if others have its name."""
    facts = baseline_facts(run)
    name = f"{run.entry.name}: {facts}" if facts else run.entry.name
    twins = sum(candidate.entry.name == run.entry.name for candidate in runs)
    return f"{name} ({run.id})" if twins > 1 else name


# -- Cards on how to record a baseline, and on runs that can serve as one -------------------------


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
