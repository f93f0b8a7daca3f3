"""One step of all ranks: who was last, why, and what that cost the others."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlencode

import dash_mantine_components as dmc
import numpy as np
from dash import html

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import CAUSES, STAGES
from stallscope.analysis.views.lanes import LANE_STAGES
from stallscope.analysis.views.one_step import OneStep, RankInStep, find_step, neighbours
from stallscope.charts.charts import MOST_RANKS, TITLES, Bar, Segment, StackedBars, entry_title
from stallscope.formatting.lists import counted, listed
from stallscope.formatting.numbers import amount, significant
from stallscope.text.cells import Cells
from stallscope.text.one_step import OneStepFigures

from ..addresses import run_address
from ..components.aria import aria
from ..components.chart_card import chart_card
from ..components.data_table import data_card
from ..components.sentence_card import sentence_card
from ..store import RunStore
from .run_page import RunPage, Shown

# Steps on either side that the link to the timeline shows.
_AROUND = 4
_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)


class StepPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/step/<step>"
    tab: ClassVar[str] = "Timeline"

    def parts(self, shown: Shown, store: RunStore) -> list[Any]:
        number = _number(shown.places["step"])
        step = None if number is None else find_step(shown.analysis, number)
        if step is None:
            return [_missing(shown, number), _way(shown, None)]
        figures = OneStepFigures.of(shown.analysis, step)
        return [
            _sentence(figures),
            _way(shown, step),
            chart_card("step", step_chart(figures)),
            _against_usual(shown.analysis, figures),
            _percentiles(step),
            _ranks(figures),
        ]

    def title(self, analysis: Analysis) -> str:
        return f"A step of {analysis.run.name}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _missing(shown: Shown, number: int | None) -> Any:
    analysis = shown.analysis
    if number is None:
        return sentence_card("No such step", "Steps have whole numbers from 0 on.")
    ledger = analysis.ledger
    if ledger is None or not len(ledger):
        return sentence_card("The stages of this step are not known", analysis.bottleneck.evidence)
    recorded = int((analysis.run.steps["step"].to_numpy() == number).sum())
    if recorded:
        return sentence_card(
            f"Step {number:,} is not in the ledger",
            f"{counted(recorded, 'rank')} recorded it, but too many of {analysis.run.size} lack stamps "
            "in it, or the step before it is missing, so that nobody can say where its time went.",
        )
    first, last = int(ledger.steps.min()), int(ledger.steps.max())
    return sentence_card(
        f"This run has no step {number:,}", f"Its steps are {first:,} to {last:,}."
    )


def _sentence(figures: OneStepFigures) -> Any:
    stage = "imbalance" if figures.step.late else "other"
    return sentence_card(_headline(figures), " ".join(_evidence(figures)), stage)


def _headline(figures: OneStepFigures) -> str:
    step = figures.step
    took = f"Step {step.step:,} took {figures.amount(figures.own.causes.total)}"
    if len(step.ranks) < 2:
        return took
    waited = figures.amount(figures.own.waits.total)
    return f"{took}: rank {step.last} was last, {waited} after the reference rank {step.reference}"


def _evidence(figures: OneStepFigures) -> list[str]:
    step, sentences = figures.step, []
    if len(step.ranks) > 1:
        cause, stage = TITLES[step.cause].lower(), figures.own.part(step.cause)
        wait = figures.own.waits.parts[STAGES.index(step.cause)]
        habit = ""
        if step.usually is not None:
            unusual = round(stage - figures.own.rounded(step.usually), figures.own.causes.decimals)
            habit = f" and {figures.more(unusual)} than usual there"
        sentences.append(
            f"Its {cause} took {figures.amount(stage)}, "
            f"{figures.more(wait)} than on rank {step.reference}{habit}."
        )
        sentences.append(
            f"The others together waited {significant(step.waited_rank_s)} rank-seconds for it."
        )
        if step.late:
            sentences.append("That is later than chance and habit explain.")
    if step.warm_up:
        sentences.append("It belongs to the warm-up, which figures of the run leave out.")
    if step.gaps:
        gaps = " and ".join(
            f"{TITLES[kind].lower()} ({amount(ms, 'ms')})" for kind, ms in step.gaps
        )
        sentences.append(f"Before it came {gaps}.")
    if step.times > 1:
        sentences.append(
            f"The job ran this step {step.times} times, after restarts; this is the last one."
        )
    if step.unmeasured:
        sentences.append(f"{listed('rank', step.unmeasured).capitalize()} did not measure it.")
    return sentences


def _way(shown: Shown, step: OneStep | None) -> Any:
    """Links to the steps around, and to the timeline."""
    timeline = run_address(shown.run_id, shown.baseline_id, page="timeline")
    if step is None:
        return _links([("The whole run in the timeline", timeline)])
    near = neighbours(shown.analysis, step.at)
    steps = (
        ("‹ Previous step", near.previous),
        ("Next step ›", near.next),
        ("‹ Previous late step", near.previous_late),
        ("Next late step ›", near.next_late),
    )
    links = [(words, _step_address(shown, number)) for words, number in steps if number is not None]
    place = urlencode(
        {
            "from": max(step.step - _AROUND, 0),
            "to": step.step + _AROUND,
            "rank": step.last,
        }
    )
    joint = "&" if "?" in timeline else "?"
    return _links([*links, ("In the timeline", f"{timeline}{joint}{place}")])


def _step_address(shown: Shown, number: int) -> str:
    return run_address(shown.run_id, shown.baseline_id, page=f"step/{number}")


def _links(links: list[tuple[str, str]]) -> Any:
    anchors = [dmc.Anchor(words, href=href, refresh=False) for words, href in links]
    return html.Nav(dmc.Group(anchors, gap="lg"), **aria(label="Other steps"))


def step_chart(figures: OneStepFigures) -> StackedBars:
    """All ranks of a step, the last one first; of many the latest, and the reference rank."""
    step = figures.step
    shown = list(step.ranks[:MOST_RANKS])
    if len(step.ranks) > MOST_RANKS:
        shown[-1] = next(rank for rank in step.ranks if rank.rank == step.reference)
    bars = tuple(
        Bar(
            _label(step, rank),
            _segments(step, rank),
            emphasised=rank.rank == step.last,
            printed=figures.rank(rank),
        )
        for rank in shown
    )
    which = (
        "All ranks"
        if len(shown) == len(step.ranks)
        else f"The {len(shown) - 1} latest of {len(step.ranks):,} ranks, and the reference rank"
    )
    return StackedBars(
        "The step on every rank",
        f"{which}, by when their gradients were ready, the last one first.",
        "ms",
        bars,
    )


def _label(step: OneStep, rank: RankInStep) -> str:
    # The last one stands out anyway.
    mark = " (reference)" if rank.rank == step.reference and len(step.ranks) > 1 else ""
    return f"rank {rank.rank}{mark}"


def _segments(step: OneStep, rank: RankInStep) -> tuple[Segment, ...]:
    stages = [Segment(name, max(getattr(rank, name), 0.0)) for name in LANE_STAGES]
    return (*stages, Segment("allreduce", step.allreduce))


def _against_usual(analysis: Analysis, figures: OneStepFigures) -> Any:
    """The step by cause beside the mean of the steady steps; None without any."""
    if figures.usual is None:
        return None
    own, usual, waits = figures.own.causes, figures.usual.causes, figures.own.waits
    titles = [*(entry_title(name, analysis) for name in CAUSES), "Step"]
    columns = (
        (*own.parts, own.total),
        (*waits.parts, None, waits.total),
        (*usual.parts, usual.total),
    )
    rows = [
        [
            title,
            own.text(here),
            "" if wait is None else own.text(wait),
            own.text(mean),
            own.signed(round(here - mean, own.decimals)),
        ]
        for title, here, wait, mean in zip(titles, *columns, strict=True)
    ]
    names = ("This step", "Others wait", "Usually", "Difference")
    return data_card(
        "Against the usual step",
        "The stages of the rank that was last, beside their means over the steady steps. Others wait: "
        "by how much a stage is longer than the reference rank's.",
        ["Stage", *(f"{name}, {figures.unit}" for name in names)],
        rows,
    )


def _percentiles(step: OneStep) -> Any:
    """How the ranks are spread; None where all of them are in the picture."""
    if len(step.ranks) <= MOST_RANKS:
        return None
    cells = Cells.for_all([step.total])
    names = (*LANE_STAGES, "arrival")
    rows = [
        [
            TITLES.get(name, "Gradients ready after"),
            *(
                cells.plain(float(value))
                for value in np.percentile(
                    [getattr(rank, name) for rank in step.ranks], _PERCENTILES
                )
            ),
        ]
        for name in names
    ]
    head = ["least", *(f"{one}%" for one in _PERCENTILES[1:-1]), "most"]
    return data_card(
        "How the ranks are spread",
        f"Of {counted(len(step.ranks), 'rank')}, so many percent take no longer; {cells.unit}.",
        ["Stage", *head],
        rows,
    )


def _ranks(figures: OneStepFigures) -> Any:
    rows = []
    for rank in figures.step.ranks:
        own = figures.rank(rank)
        stages = [own.text(part) for part in own.parts[: len(LANE_STAGES)]]
        rows.append([str(rank.rank), rank.host, *stages, figures.late(rank)])
    titles = [f"{title}, {figures.unit}" for title in ("Other", "Input", "Compute", "Waits")]
    return data_card(
        "Ranks",
        "The last one first; lateness is against the reference rank.",
        ["Rank", "Host", *titles, f"Later by, {figures.unit}"],
        rows,
        text_columns=2,
    )
