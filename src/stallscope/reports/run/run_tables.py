"""The tables on one run, as text in cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.job_time import Goodput
from stallscope.analysis.ledger.ledger_figures import RankSummary
from stallscope.analysis.views.rank_maps import places_in_mesh
from stallscope.formatting.lists import joined, ranks_in_words
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    amount,
    finite,
    percent,
    plus_minus,
    share,
    significant,
)
from stallscope.formatting.sums import SumColumn
from stallscope.text import job_words, straggler_words
from stallscope.text.figure_words import printed_figures, printed_job_parts
from stallscope.text.gain_words import (
    answers,
    gains_note,
    gains_worth_mentioning,
    saved,
    speedup,
    speedup_interval,
)
from stallscope.text.job_words import (
    checkpoint_sentence,
    duration,
    goodput_column,
    goodput_parts,
    goodput_sentence,
    job_total,
)
from stallscope.text.step_figures import StepFigures
from stallscope.text.verdicts import headline
from stallscope.text.vocabulary import TITLES
from stallscope.words import RANK_PARTS

from ..document import NOTHING, Table
from .run_contents import job_parts
from .step_tables import share_of, step_unit

#: The note below extrapolated gains.
EXTRAPOLATED = (
    "Extrapolated: bandwidth as if latency cost nothing; ranks by a model of the communication. Its "
    "interval goes from all bandwidth to all latency if runs of one size only are known."
)
_RANK_TITLES = ("Input", "Compute", "Other", "Waiting", "Allreduce")
# More are hard to read; the dashboard and JSON have all of them.
_MOST_EVENTS = 50
_MOST_EPOCHS = 10
_MOST_RANKS = 8
_MOST_STRAGGLERS = 5


def stragglers_table(analysis: Analysis) -> Table | None:
    """Return the table of stragglers; None if there are none."""
    if not analysis.stragglers:
        return None
    slow_ranks = analysis.stragglers
    return Table.of(
        "Stragglers",
        {
            "Who": map(straggler_words.who, slow_ranks),
            "When": map(straggler_words.pattern, slow_ranks),
            "Stage": [TITLES[straggler.stage] for straggler in slow_ranks],
            "By how much": map(straggler_words.excess, slow_ranks),
            "Share of steps": [percent(straggler.late_share) for straggler in slow_ranks],
            "Costs per step": map(straggler_words.cost, slow_ranks),
        },
        words=frozenset({0, 1, 2}),
        note=straggler_words.NOTE,
        most={"terminal": _MOST_STRAGGLERS},
    )


def epochs_table(analysis: Analysis) -> Table | None:
    """Return the duration of each epoch if logs record epochs but no steps; None otherwise.

    Between rare lines about steps, an epoch's time may be known by half of it only: it is left out.
    """
    known = analysis.epoch_times
    if known is None:
        return None
    epochs = [
        epoch
        for epoch in known.epochs
        if analysis.printed is None or epoch.precision_s < epoch.s / 2
    ]
    if not epochs:
        return None
    # As the log prints them.
    base = int(analysis.run.fact("epoch_base") or 0)
    columns: dict[str, Iterable[str]] = {
        "Fit": [str(epoch.fit) for epoch in epochs],
        "Epoch": [str(epoch.epoch + base) for epoch in epochs],
        "Rank": [str(epoch.rank) for epoch in epochs],
        "Took": map(duration, epochs),
    }
    for title in ("Fit", "Rank"):
        if len(set(columns[title])) == 1:
            del columns[title]
    return Table.of(
        "Epochs",
        columns,
        words=frozenset(),
        most={"terminal": _MOST_EPOCHS},
        note=f"From {known.known_from}: {known.precision}. Epochs are counted from 0, and "
        "include their validation if the log's times do. ± is the rounding of a time.",
    )


def printed_steps_table(analysis: Analysis) -> Table | None:
    """Return the figures of printed step times; None without any."""
    figures = printed_figures(analysis.printed)
    if not figures:
        return None
    names, texts = zip(*figures, strict=True)
    columns = {"Figure": names, "Value": texts}
    recorded = analysis.printed is not None and analysis.printed.recorded
    title = "Steps without stages" if recorded else "Steps by printed lines"
    return Table.of(title, columns, words=frozenset({0, 1}))


def printed_ranks_table(analysis: Analysis) -> Table | None:
    """Return the step times that each rank printed; None unless several ranks did."""
    printed = analysis.printed
    if printed is None or len(printed.ranks) < 2:
        return None
    ranks = printed.steady_ranks if printed.recorded else printed.ranks
    waits = [rank.mean_input_ms for rank in ranks]
    columns: dict[str, Iterable[str]] = {
        "Rank": [str(rank.rank) for rank in ranks],
        "Lines": [f"{len(rank):,}" for rank in ranks],
        "Steps": [f"{int(rank.steps.sum()):,}" for rank in ranks],
        "Mean step, ms": [significant(rank.mean_ms) for rank in ranks],
        "Waiting for data, ms": [
            NOT_MEASURED if wait is None else significant(wait) for wait in waits
        ],
    }
    if all(wait is None for wait in waits):
        del columns["Waiting for data, ms"]
    if printed.recorded:
        del columns["Lines"]
    title = "Steps of each rank" if printed.recorded else "Ranks that printed"
    return Table.of(title, columns, words=frozenset(), most={"terminal": _MOST_RANKS})


def gains_table(analysis: Analysis, most: int | None = None) -> Table | None:
    """Return the gain of each fix, and the answers to questions; None if unknown.

    Args:
        most: the number of fixes; default: all.
    """
    gains = [*gains_worth_mentioning(analysis)[:most], *answers(analysis)]
    if not gains:
        return None
    note = gains_note(analysis)
    if is_extrapolated(analysis):
        note = f"{note} {EXTRAPOLATED}"
    fixes = [gain.what_if for gain in gains]
    return Table.of(
        "Potential gains",
        {
            "Fix": [gain.title for gain in gains],
            "Saved per step": [saved(fix) or NOTHING for fix in fixes],
            "Speed-up": map(speedup, fixes),
            "95% interval": map(speedup_interval, fixes),
        },
        note=note,
        without={"terminal": (1,)},
    )


def is_extrapolated(analysis: Analysis) -> bool:
    """Return whether an answer is extrapolated beyond the recorded runs."""
    return any(answer.what_if.extrapolated for answer in answers(analysis))


def events_table(analysis: Analysis) -> Table | None:
    """Return the events that other logs of the job report; None without any."""
    run = analysis.run
    listed = job_words.worst(run.events, _MOST_EVENTS)
    if not listed:
        return None
    note = "Times count from the start of the first log, by the wall clocks of the logs' writers."
    more = len(run.events) - len(listed)
    if more:
        note += f" {more:,} more of {len(run.events):,} are left out, the harmless ones first."
    columns = {
        "When": [job_words.when(event, run) for event in listed],
        "What happened": map(job_words.what, listed),
        "Of": [job_words.who(event) or NOTHING for event in listed],
        "Log": [event.where for event in listed],
    }
    return Table.of(job_words.TITLE, columns, words=frozenset(range(len(columns))), note=note)


def ranks_table(
    analysis: Analysis, title: str = "Ranks", ranks: Sequence[RankSummary] | None = None
) -> Table:
    """Return the means per step of these ranks; of every rank without them."""
    ranks = analysis.ranks if ranks is None else ranks
    named = set(analysis.bottleneck.ranks)
    stages = zip(*rank_cells(analysis, ranks), strict=True) if ranks else [()] * len(RANK_PARTS)
    unit = step_unit(analysis)
    return Table.of(
        title,
        {
            "Rank": [str(rank.rank) for rank in ranks],
            "Host": [rank.host for rank in ranks],
            **{f"{name}, {unit}": cells for name, cells in zip(_RANK_TITLES, stages, strict=True)},
            "Last to be ready": [share(rank.critical_share) for rank in ranks],
            "Clock offset, ms": map(clock, ranks),
        },
        words=frozenset({1}),
        emphasised=frozenset(row for row, rank in enumerate(ranks) if rank.rank in named),
        note="Means per steady step. Stragglers are highlighted.",
        without={"terminal": (4, 6, 8)},
        most={"terminal": _MOST_RANKS},
    )


def places_table(analysis: Analysis) -> Table | None:
    """Return the means per step of the ranks of each place in the job's mesh; None without a mesh."""
    groups = [
        (place, ranks)
        for places in places_in_mesh(analysis).values()
        for place, ranks in places.items()
    ]
    if not groups:
        return None
    slow = {straggler.place for straggler in analysis.stragglers}
    means = [_mean_of(ranks) for _, ranks in groups]
    unit, stages = step_unit(analysis), zip(*rank_cells(analysis, means), strict=True)
    return Table.of(
        "Places in the mesh",
        {
            "Place": [place for place, _ in groups],
            "Ranks": [ranks_in_words([rank.rank for rank in ranks]) for _, ranks in groups],
            **{f"{name}, {unit}": cells for name, cells in zip(_RANK_TITLES, stages, strict=True)},
            "Has the last rank": [share(rank.critical_share) for rank in means],
        },
        words=frozenset({0, 1}),
        emphasised=frozenset(row for row, (place, _) in enumerate(groups) if place in slow),
        note="Means per steady step over the ranks of a place. Slow places are highlighted.",
    )


def _mean_of(ranks: Sequence[RankSummary]) -> RankSummary:
    """Return the means over some ranks, and how often one of them was last."""
    means: dict[str, Any] = {}
    for name in RANK_PARTS:
        known = [ms for rank in ranks if (ms := getattr(rank, f"{name}_ms")) is not None]
        means[f"{name}_ms"] = sum(known) / len(known) if len(known) == len(ranks) else None
    shares = [rank.critical_share for rank in ranks if rank.critical_share is not None]
    return replace(ranks[0], **means, critical_share=sum(shares) if shares else None)


def rank_cells(analysis: Analysis, ranks: Sequence[RankSummary]) -> list[list[str]]:
    """Return each rank's input, compute, other, waits and allreduce in the step's unit."""
    figures = StepFigures.of(analysis)
    if figures is None:
        return [[NOT_MEASURED] * len(RANK_PARTS) for _ in ranks]
    return [
        [figures.text(printed[name]) if name in printed else NOT_MEASURED for name in RANK_PARTS]
        for printed in figures.of_ranks(ranks)
    ]


def clock(rank: RankSummary) -> str:
    """Return the offset of a rank's clock from the first host's in ms, with its uncertainty."""
    uncertainty = finite(rank.clock_uncertainty_ms)
    if uncertainty is None:
        return "unknown"
    offset = rank.clock_offset_ms
    if not uncertainty:
        return significant(offset)
    return plus_minus(offset, (offset - uncertainty, offset + uncertainty))


def generations_table(analysis: Analysis) -> Table | None:
    """Return the generations of a run with changing ranks, in order; None for a single one."""
    generations = analysis.generations
    if len(generations) < 2:
        return None
    return Table.of(
        "Generations: the ranks between two changes",
        {
            "Generation": [str(generation.number) for generation in generations],
            "Started": [_time_of_day(generation.started_at) for generation in generations],
            "Ranks": [str(generation.size) for generation in generations],
            "Hosts": [joined(generation.host_names) for generation in generations],
            "Steps": [f"{generation.steps:,}" for generation in generations],
            "Trained again": [
                _count_or_unknown(generation.repeated_steps) for generation in generations
            ],
            "Step time": [
                NOT_MEASURED
                if generation.step is None
                else amount(generation.step.mean, "ms", generation.step.ci95)
                for generation in generations
            ],
            "Verdict": [
                headline(generation.bottleneck, generation.stragglers) for generation in generations
            ],
            "Ended": [generation.ended_by or NOTHING for generation in generations],
        },
        words=frozenset({1, 3, 7, 8}),
        note="Times are in UTC. The JSON has the ledger, stragglers and findings of each one.",
    )


def _count_or_unknown(count: int | None) -> str:
    return job_words.NOT_KNOWN if count is None else f"{count:,}"


def _time_of_day(moment: datetime | None) -> str:
    return NOTHING if moment is None else f"{moment:%H:%M:%S}"


def job_table(analysis: Analysis) -> Table:
    """Return the time of compute and of each cause; without stages, only the whole job."""
    goodput = analysis.goodput
    if analysis.printed is not None and analysis.ledger is None:
        known = printed_job_parts(analysis.printed, analysis.job.total)
        total = sum(known.values())
        of_lines = SumColumn.of([*known.values()], total, unit="s", finer=1)
        rows = [
            (title, of_lines.amount(printed), share_of(value, total))
            for (title, value), printed in zip(known.items(), of_lines.parts, strict=True)
        ]
    elif goodput is None:
        rows = [(TITLES[name], NOT_MEASURED, NOTHING) for name, _ in job_parts(analysis)]
    else:
        parts, column = goodput_parts(analysis), goodput_column(analysis)
        rows = [
            (TITLES[name], column.amount(printed), share_of(value, analysis.job.total))
            for (name, value), printed in zip(parts, column.parts, strict=True)
        ]
    rows.append(("Job", job_total(analysis), "100%"))
    return Table(
        "Where the job's time went",
        ("Part", "Time", "Share"),
        tuple(rows),
        emphasised=frozenset({len(rows) - 1}),
        note=" ".join(filter(None, (_goodput_note(goodput), checkpoint_sentence(analysis)))),
    )


def _goodput_note(goodput: Goodput | None) -> str:
    return "" if goodput is None else goodput_sentence(goodput)
