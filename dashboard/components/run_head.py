"""The head of a run's pages: its name, its facts, and the choice of a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, html

from stallscope.analysis import Analysis
from stallscope.run import Run
from stallscope.text.job import ranks_and_hosts, steps_and_epochs

from ..addresses import ADDRESS, compare_address
from ..downloads import DOWNLOADS, download_address
from ..run_folder import is_recording, log_silence_s, silence_sentence
from ..store import ListedRun
from .baseline_howto import baseline_facts, grouped_baselines
from .basics import add_script, aria, link

_BASELINE_SELECT = "baseline"


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
                    _actions(run_id, baseline_id),
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
    if with_status and run.status != "completed":
        badges.append(recording_badge(silence_s))
    return badges


def _as_of(run: Run, read_at: datetime | None, silence_s: float | None) -> Any:
    if run.status == "completed":
        return None
    if silence_s is not None and not is_recording(silence_s):
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
        str(run.fact("framework") or "framework not recorded"),
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


def _actions(run_id: str, baseline_id: str | None) -> Any:
    """Link to downloads, and copy the address."""
    links = [
        html.A(
            one.words,
            href=download_address(run_id, baseline_id, one),
            target="_blank" if one.inline else None,
            rel="noopener" if one.inline else None,
            title=one.title,
            className="run-action",
        )
        for one in DOWNLOADS
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
    twins = sum(other.entry.name == run.entry.name for other in runs)
    return f"{name} ({run.id})" if twins > 1 else name
