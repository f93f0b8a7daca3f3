"""Show one step on all ranks: the last rank, the cause, and the cost for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

import dash_mantine_components as dmc
import numpy as np
from dash import html

from stallscope.analysis import Analysis
from stallscope.analysis.findings.delays_in_steps import thread_with_the_lock
from stallscope.analysis.views.one_step import (
    LockWaitsOfRank,
    OneStep,
    RankInStep,
    StepOf,
    find_step,
    lock_waits_of_step,
    neighbours,
    pauses_of_step,
)
from stallscope.charts.chart_kinds import Bar, Segment, StackedBars
from stallscope.charts.charts import MOST_RANKS
from stallscope.formatting.lists import capitalised, counted, joined, listed
from stallscope.formatting.numbers import Cells, amount, interval
from stallscope.reports.document import Table
from stallscope.text.step_figures import OneStepFigures
from stallscope.text.vocabulary import TITLES, entry_title
from stallscope.words import CAUSES, RANK_PARTS, STAGES

from ..components.basics import aria, link, sentence_card
from ..components.chart_card import picture
from ..components.data_tables import data_card, folded_table
from ..store import RunStore
from .run_page import RunPage, RunRequest

# Steps before and after that the link to the timeline shows.
_AROUND = 4
_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
_MOST_PAUSES = 4
_PAUSED = {"garbage_collection": "collected garbage", "compilation": "compiled", "saving": "saved"}
_GAPS = {"epoch_gap": "the time between epochs"}


class StepPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/step/<step>"
    tab: ClassVar[str] = "Timeline"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        number = _number(request.path_values["step"])
        generation = _number(request.query.get("generation", ""))
        step = None if number is None else find_step(request.analysis, number, generation)
        if step is None:
            return [_missing(request.analysis, number, generation), _navigation(request, None)]
        figures = OneStepFigures.of(request.analysis, step)
        return [
            _sentence(request.analysis, figures),
            _navigation(request, step),
            picture(
                "step",
                step_chart(figures),
                folded_table(_percentiles(step)),
                folded_table(_ranks(figures), f"All {counted(len(step.ranks), 'rank')}"),
            ),
            _against_mean(request.analysis, figures),
        ]

    def title(self, analysis: Analysis) -> str:
        return f"A step of {analysis.run.name}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _missing(analysis: Analysis, number: int | None, generation: int | None) -> Any:
    if number is None:
        return sentence_card("No such step", "Steps are numbered from 0.")
    generations = analysis.generation_ledgers
    if not generations:
        return sentence_card("The stages of this step are not known", analysis.why_no_stages)
    run, recorded = analysis.run, analysis.run.steps["step"].to_numpy() == number
    subject, size = "This run", run.size
    if generation is not None:
        generations = tuple(entry for entry in generations if entry.number == generation)
        if not generations:
            known = joined([str(entry.number) for entry in analysis.generation_ledgers])
            return sentence_card(
                f"Generation {generation:,} is not known", f"Those with ledgers are: {known}."
            )
        recorded &= run.steps["generation"].to_numpy() == generation
        subject, size = f"Generation {generation:,}", generations[0].size
    if recorded.any():
        return sentence_card(
            f"Step {number:,} is not in the ledger",
            f"{counted(int(recorded.sum()), 'rank')} recorded it, but too many of {size} have no "
            "timestamps in it, or the step before it is missing, so its time cannot be attributed.",
        )
    first = min(int(entry.ledger.steps.min()) for entry in generations)
    last = max(int(entry.ledger.steps.max()) for entry in generations)
    return sentence_card(
        f"{subject} has no step {number:,}", f"Its steps are {first:,} to {last:,}."
    )


def _sentence(analysis: Analysis, figures: OneStepFigures) -> Any:
    colour = "warning" if figures.step.late else "neutral"
    pauses, waits = _pauses(analysis, figures.step), _lock_waits(analysis, figures.step)
    sentences = [*_evidence(figures), *pauses, *waits]
    return sentence_card(_headline(analysis, figures), " ".join(sentences), colour)


def _pauses(analysis: Analysis, step: OneStep) -> list[str]:
    """Say what paused ranks within the step; of many pauses the longest ones."""
    pauses = pauses_of_step(analysis.run, step)
    sentences = [
        f"Rank {pause.rank} {_PAUSED[pause.kind]} for {amount(pause.ms, 'ms')}."
        for pause in pauses[:_MOST_PAUSES]
    ]
    left = len(pauses) - len(sentences)
    return [*sentences, *([f"There are {counted(left, 'shorter pause')}."] if left > 0 else [])]


def _lock_waits(analysis: Analysis, step: OneStep) -> list[str]:
    """Say which ranks waited for Python's lock; of many the ones that waited longest."""
    waits = lock_waits_of_step(analysis.run, step)
    if not waits:
        return []
    shown = waits[:_MOST_PAUSES]
    sentences = [_lock_wait(wait) for wait in shown]
    if len(waits) > len(shown):
        others = counted(len(waits) - len(shown), "other rank")
        sentences.append(f"{capitalised(others)} waited for it, too.")
    logs = analysis.run.last_logs_of(step.generation)
    thread = thread_with_the_lock(logs[wait.rank] for wait in waits if wait.rank in logs)
    if thread:
        sentences.append(f"Over all steps, {thread} had the lock most often then.")
    return sentences


def _lock_wait(wait: LockWaitsOfRank) -> str:
    waited = f"Rank {wait.rank} waited for Python's lock"
    looks = f"{counted(wait.looks, 'look')} of the recorder found that"
    if wait.ci95 is None:
        return f"{waited}; {looks}, too few to tell how long."
    return f"{waited} for about {amount(wait.ms, 'ms')} ({interval(wait.ci95, 'ms')}); {looks}."


def _headline(analysis: Analysis, figures: OneStepFigures) -> str:
    step = figures.step
    of_generation = ""
    if len(analysis.generations) > 1:
        size = counted(analysis.run.size_of(step.generation), "rank")
        of_generation = f" of generation {step.generation} ({size})"
    took = f"Step {step.step:,}{of_generation} took {figures.amount(figures.ledgers.causes.total)}"
    if len(step.ranks) < 2:
        return took
    waited = figures.amount(figures.ledgers.waits.total)
    return f"{took}: rank {step.last} was last, {waited} after the reference rank {step.reference}"


def _evidence(figures: OneStepFigures) -> list[str]:
    step, sentences = figures.step, []
    if len(step.ranks) > 1:
        cause, stage = TITLES[step.cause].lower(), figures.ledgers.part(step.cause)
        wait = figures.ledgers.waits.parts[STAGES.index(step.cause)]
        than_mean = ""
        if figures.mean is not None:
            more = round(stage - figures.mean.part(step.cause), figures.ledgers.causes.decimals)
            than_mean = f" and {figures.more(more)} than in the mean step"
        sentences.append(
            f"Its {cause} took {figures.amount(stage)}, "
            f"{figures.more(wait)} than on rank {step.reference}{than_mean}."
        )
        waited = amount(1e3 * step.waited_rank_s, "ms")
        sentences.append(
            f"Together, the other ranks waited {waited} for it."
            if len(step.ranks) > 2
            else f"The other rank waited {waited} for it."
        )
        if step.late:
            sentences.append("That is unusually late for this run.")
    if step.warm_up:
        sentences.append(
            "The run's figures exclude it: it belongs to the warm-up or an input probe."
        )
    if step.gaps:
        gaps = [
            f"{_GAPS.get(kind, TITLES[kind].lower())} ({amount(ms, 'ms')})"
            for kind, ms in step.gaps
        ]
        sentences.append(f"It was preceded by {joined(gaps)}.")
    if len(step.generations) > 1:
        sentences.append(f"{listed('Generation', step.generations)} trained this step.")
    if step.unmeasured:
        sentences.append(f"{listed('rank', step.unmeasured).capitalize()} did not measure it.")
    return sentences


def _navigation(request: RunRequest, step: OneStep | None) -> Any:
    """Return links to other steps and to the timeline."""
    timeline = request.address("timeline")
    if step is None:
        return _links([("The whole run in the timeline", timeline)])
    others = neighbours(request.analysis, step.at)
    steps = (
        ("‹ Previous step", others.previous),
        ("Next step ›", others.next),
        ("‹ Previous late step", others.previous_late),
        ("Next late step ›", others.next_late),
    )
    again = [
        (f"In generation {number}", StepOf(step.step, number))
        for number in step.generations
        if number != step.generation
    ]
    links = [
        (text, _step_address(request, place))
        for text, place in (*steps, *again)
        if place is not None
    ]
    suffix = f"g{step.generation}" if len(request.analysis.generations) > 1 else ""
    view = {"from": max(step.step - _AROUND, 0), "to": step.step + _AROUND, "rank": step.last}
    in_timeline = _with(timeline, {name: f"{value}{suffix}" for name, value in view.items()})
    return _links([*links, ("In the timeline", in_timeline)])


def _step_address(request: RunRequest, place: StepOf) -> str:
    address = request.address(f"step/{place.step}")
    several = len(request.analysis.generations) > 1
    return _with(address, {"generation": place.generation}) if several else address


def _with(address: str, query: Mapping[str, object]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _links(links: list[tuple[str, str]]) -> Any:
    anchors = [link(text, address) for text, address in links]
    return html.Nav(dmc.Group(anchors, gap="lg"), **aria(label="Other steps"))


def step_chart(figures: OneStepFigures) -> StackedBars:
    """Return the chart of a step's ranks, latest first; of many, the latest and the reference rank."""
    step = figures.step
    chosen = list(step.ranks[:MOST_RANKS])
    if len(step.ranks) > MOST_RANKS:
        chosen[-1] = next(rank for rank in step.ranks if rank.rank == step.reference)
    bars = tuple(
        Bar(
            _label(step, rank),
            _segments(step, rank),
            emphasised=rank.rank == step.last,
            printed=printed,
        )
        for rank, printed in zip(chosen, figures.ranks(chosen), strict=True)
    )
    subject = (
        "All ranks"
        if len(chosen) == len(step.ranks)
        else f"The {len(chosen) - 1} latest of {len(step.ranks):,} ranks, and the reference rank"
    )
    return StackedBars(
        "The step on every rank",
        f"{subject}, sorted by when their gradients were ready, latest first.",
        "ms",
        bars,
        emphasis="last rank",
    )


def _label(step: OneStep, rank: RankInStep) -> str:
    # The last rank is emphasised anyway.
    mark = " (reference)" if rank.rank == step.reference and len(step.ranks) > 1 else ""
    return f"rank {rank.rank}{mark}"


def _segments(step: OneStep, rank: RankInStep) -> tuple[Segment, ...]:
    stages = [Segment(name, max(getattr(rank, name), 0.0)) for name in RANK_PARTS[:-1]]
    return (*stages, Segment("allreduce", step.allreduce))


def _against_mean(analysis: Analysis, figures: OneStepFigures) -> Any:
    """Return the step by cause with the mean of the steady steps; None without steady steps."""
    if figures.mean is None:
        return None
    causes, mean_step, waits = figures.ledgers.causes, figures.mean.causes, figures.ledgers.waits
    titles = [*(entry_title(name, analysis) for name in CAUSES), "Step"]
    columns = (
        (*causes.parts, causes.total),
        (*waits.parts, None, waits.total),
        (*mean_step.parts, mean_step.total),
    )
    rows = [
        [
            title,
            causes.text(here),
            "" if wait is None else causes.text(wait),
            causes.text(mean),
            causes.signed(round(here - mean, causes.decimals)),
        ]
        for title, here, wait, mean in zip(titles, *columns, strict=True)
    ]
    names = ("This step", "Waiting", "Mean step", "Difference")
    return data_card(
        "Against the mean step",
        "The stages of the last rank. The mean step is that of the steady steps, with the stages "
        "of the rank that is last in each. Waiting: how much longer a stage is than on the reference "
        "rank, which waits for it.",
        ["Stage", *(f"{name}, {figures.unit}" for name in names)],
        rows,
    )


def _percentiles(step: OneStep) -> Table | None:
    """Tabulate percentiles of the ranks' stages; None if the chart shows all ranks."""
    if len(step.ranks) <= MOST_RANKS:
        return None
    cells = Cells.for_all([step.total])
    names = (*RANK_PARTS[:-1], "arrival")
    figures = [[getattr(rank, name) for rank in step.ranks] for name in names]
    percentiles = np.percentile(figures, _PERCENTILES, axis=1).T.tolist()
    rows = [
        (TITLES.get(name, "Gradients ready after"), *map(cells.plain, values))
        for name, values in zip(names, percentiles, strict=True)
    ]
    head = ["least", *(f"{percentile}%" for percentile in _PERCENTILES[1:-1]), "most"]
    return Table(
        "Spread of the ranks",
        ("Stage", *head),
        tuple(rows),
        note=f"Percentiles over {counted(len(step.ranks), 'rank')}, in {cells.unit}.",
    )


def _ranks(figures: OneStepFigures) -> Table:
    """Tabulate the stages of all ranks."""
    rows = []
    ranks = figures.step.ranks
    for rank, rank_figures in zip(ranks, figures.ranks(ranks), strict=True):
        stages = [rank_figures.text(part) for part in rank_figures.parts[:-1]]
        rows.append((str(rank.rank), rank.host, *stages, figures.late(rank_figures)))
    titles = [f"{title}, {figures.unit}" for title in ("Input", "Compute", "Other", "Waiting")]
    return Table(
        "Ranks",
        ("Rank", "Host", *titles, f"Later by, {figures.unit}"),
        tuple(rows),
        words=frozenset({0, 1}),
        note="Latest first; lateness is relative to the reference rank.",
    )
