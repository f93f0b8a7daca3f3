"""Cards of the tensors in a Horovod Timeline among a run's files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import dash_mantine_components as dmc
import numpy as np

from stallscope.analysis.network.tensors import (
    SIZES,
    AllreduceSteps,
    Fusion,
    SizeClass,
    Tensors,
    TensorTimes,
    by_size,
)
from stallscope.arrays.types import Floats
from stallscope.charts import PALETTE
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import Cells, amount, between, finite, percent, significant
from stallscope.formatting.plain import plain
from stallscope.reports.document import NOTHING, Table
from stallscope.run import Run
from stallscope.text.figure_words import bytes_in_words

from ..companion_files import LoadedTimeline, LoadingTimeline
from .basics import card, line_sample, progress_bar
from .chart_card import custom_chart_card, custom_drawing, legend
from .data_tables import AS_A_TABLE, data_card, data_table, folded, folded_table

# The table of more tensors is folded.
_MOST_OPEN_TENSORS = 12
_MOST_TENSORS, _MOST_PARTS, _MOST_RANKS = 2000, 5, 32
# Only the ends of long names differ.
_LONGEST_NAME = 64
_MOST_BARS = 24
# A timeline and logs that start this far apart are probably of different jobs.
_ANOTHER_RUN_S = 3600
# Charts and tables cannot show more.
_MOST_POINTS = 200
# The parts' labels, colours and dashes. Stages' colours would say that the parts are stages.
_PARTS = (
    ("negotiation", "negotiation", "negotiation", "dashdot"),
    ("wait", "waiting for data and in queues", "muted", "dot"),
    ("copy", "copies to and from fusion buffers", "ink", "dash"),
    ("transfer", "transfer", "bandwidth", "solid"),
)


def reading_card(timeline: LoadingTimeline) -> Any:
    """Show the progress of reading a timeline."""
    progress = f"{bytes_in_words(timeline.read)} of {bytes_in_words(timeline.size)}"
    text = f"Reading {plain(timeline.path.name)}: {progress}. The page updates itself."
    bar = progress_bar(timeline.read, timeline.size, progress, mt="xs")
    return card("Horovod Timeline", dmc.Text(text, size="sm"), bar)


def timeline_card(timeline: LoadedTimeline, run: Run) -> Any:
    """Tabulate the contents of a timeline, and where its time goes."""
    tensors = timeline.tensors
    rows = [
        ("File", plain(timeline.path.name)),
        ("Read", f"all of its {bytes_in_words(timeline.size)}"),
        ("Begins", _start(timeline, run)),
        ("Covers", amount(tensors.span_ms, "ms")),
        ("Time in which tensors are negotiated", percent(tensors.negotiating)),
        ("Time in which operations run", percent(tensors.operating)),
        ("Cycles", _cycles(tensors)),
        (
            "Steps",
            f"unknown: {tensors.no_steps}" if tensors.no_steps else f"{len(tensors.steps):,}",
        ),
    ]
    if timeline.damaged:
        rows.append(("Damaged", f"{counted(timeline.damaged, 'event')} left out"))
    if timeline.unfinished:
        unfinished = (
            "1 activity has" if timeline.unfinished == 1 else f"{timeline.unfinished:,} have"
        )
        rows.append(("Not ended", f"{unfinished} no end in what was read, and left out"))
    return data_card(
        "Horovod Timeline",
        "Of rank 0, which it makes slower. Negotiation goes from the first rank that has a tensor ready "
        "to the last one: most of it is waiting for ranks. Times of several tensors count while any of "
        "them is active.",
        ("What", "In this timeline"),
        rows,
        text_columns=2,
    )


def _start(timeline: LoadedTimeline, run: Run) -> str:
    if timeline.start_us is None:
        return "not known: Horovod before 0.20.1"
    try:
        start = datetime.fromtimestamp(timeline.start_us / 1e6, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return "at an impossible time"
    text = f"{start:%Y-%m-%d %H:%M:%S} UTC"
    if run.started_at is None:
        return text
    apart = (run.started_at - start).total_seconds()
    word = "before" if apart >= 0 else "after"
    text += f", {amount(abs(apart) * 1e3, 'ms')} {word} the step logs"
    return text + (": maybe of another run" if abs(apart) > _ANOTHER_RUN_S else "")


def _cycles(tensors: Tensors) -> str:
    if tensors.cycles is None:
        return "not marked (HOROVOD_TIMELINE_MARK_CYCLES=1)"
    median, p95 = amount(tensors.cycles.median_ms, "ms"), amount(tensors.cycles.p95_ms, "ms")
    return f"{tensors.cycles.count:,}; median {median}, 95th percentile {p95}"


def tensors_card(tensors: Tensors) -> Any:
    """Tabulate every tensor, the busiest first; many are folded."""
    if not tensors.tensors:
        return None
    shown = tensors.tensors[:_MOST_TENSORS]
    parts = tensors.parts[:_MOST_PARTS]
    waits = Cells.for_all(tensor.negotiation_ms for tensor in shown)
    cells = Cells.for_all(tensor.operation_ms for tensor in shown)
    left_out = len(tensors.tensors) - len(shown)
    table = Table(
        "Tensors",
        (
            "Tensor",
            "Operation",
            "Size",
            "Operations",
            f"Negotiation, {waits.unit}",
            f"Operation, {cells.unit}",
            *(f"{plain(part)}, {cells.unit}" for part in parts),
        ),
        tuple(_tensor_row(tensor, parts, waits, cells) for tensor in shown),
        words=frozenset({0, 1}),
    )
    return card(
        table.title,
        folded_table(
            table, counted(len(shown), "tensor"), is_open=len(shown) <= _MOST_OPEN_TENSORS
        ),
        note="The busiest first; means per operation. Tensors that were fused share their operation: "
        "their times do not add up." + (f" {left_out:,} more are left out." if left_out else ""),
    )


def _tensor_row(
    tensor: TensorTimes, parts: tuple[str, ...], waits: Cells, cells: Cells
) -> tuple[str, ...]:
    times = (tensor.operation_ms, *(tensor.parts_ms.get(part) for part in parts))
    name = plain(tensor.name)
    return (
        name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}",
        plain(tensor.operation).lower() or NOTHING,
        NOTHING if tensor.size is None else bytes_in_words(tensor.size),
        f"{tensor.operations:,}",
        NOTHING if tensor.negotiation_ms is None else waits.plain(tensor.negotiation_ms),
        *(NOTHING if value is None else cells.plain(value) for value in times),
    )


def fusion_card(fusion: Fusion) -> Any:
    """Chart the number of tensors per allreduce."""
    operations = len(fusion.tensors)
    if not operations:
        return None
    counts, labels = _bars(fusion.tensors)

    drawn = custom_drawing()
    drawn.add_trace(
        "bar",
        x=labels,
        y=counts,
        marker={"color": PALETTE["allreduce"], "line": {"width": 0}},
        hovertemplate="%{x} fused: %{y:,} allreduces<extra></extra>",
    )
    title = {"text": "tensors in one allreduce"}
    drawn.update(
        xaxis={"type": "category", "showgrid": False, "title": title},
        yaxis={"title": {"text": "allreduces"}},
    )
    whole = f"{counted(int(fusion.tensors.sum()), 'tensor')} went through {operations:,}"
    alone = percent(float((fusion.tensors == 1).mean()))
    known = fusion.bytes[np.isfinite(fusion.bytes)]
    size = (
        f"; half of them move {bytes_in_words(int(np.median(known)))} or more" if len(known) else ""
    )
    return custom_chart_card(
        "fusion",
        "Fusion",
        f"{whole} allreduces, {significant(float(fusion.tensors.mean()))} in each on average; {alone} "
        f"of the allreduces have one tensor{size}.",
        drawn,
        (
            ("tensors in one allreduce", "allreduces"),
            list(zip(labels, counts, strict=True)),
        ),
    )


def _bars(tensors: Any) -> tuple[list[int], list[str]]:
    """Count operations by their number of tensors, and label the bars."""
    most = int(tensors.max())
    width = -(-most // _MOST_BARS)
    counts = np.bincount((tensors - 1) // width, minlength=-(-most // width)).tolist()
    lows = [1 + width * bar for bar in range(len(counts))]
    return counts, [str(low) if width == 1 else f"{low}–{low + width - 1}" for low in lows]


def sizes_card(fusion: Fusion, ranks: int) -> Any:
    """Tabulate operations by size: their number, time and bandwidth."""
    classes = by_size(fusion, ranks)
    if not classes:
        return None
    cells = Cells.for_all(size_class.transfer_ms for size_class in classes)
    whole = sum(size_class.bytes for size_class in classes)
    return data_card(
        "Allreduces by size",
        "The reduction itself, without negotiation and copies: medians, and for the bandwidth the "
        "range of the middle half. Bus bandwidth is 2(N−1)/N × bytes / time.",
        (
            "Size",
            "Allreduces",
            "Share of bytes",
            f"Takes, {cells.unit}",
            "Bus bandwidth, GB/s",
            "Middle half, GB/s",
        ),
        [_size_row(size_class, whole, cells) for size_class in classes],
    )


def _size_row(size_class: SizeClass, whole: float, cells: Cells) -> tuple[str, ...]:
    return (
        _size(SIZES.index(size_class.up_to)),
        f"{size_class.operations:,}",
        percent(size_class.bytes / whole),
        cells.plain(size_class.transfer_ms),
        NOTHING if size_class.bandwidth is None else significant(size_class.bandwidth),
        NOTHING if size_class.quartiles is None else between(*size_class.quartiles),
    )


def _size(at: int) -> str:
    """Label a class of sizes."""
    if at == 0:
        return f"up to {bytes_in_words(int(SIZES[0]))}"
    above = bytes_in_words(int(SIZES[at - 1]))
    if not isfinite(SIZES[at]):
        return f"more than {above}"
    return f"{above} – {bytes_in_words(int(SIZES[at]))}"


def late_card(tensors: Tensors) -> Any:
    """Tabulate the ranks that came last in negotiations, if ranks were marked."""
    if not tensors.negotiations:
        return None
    coverage = (
        f"In {tensors.ticked:,} of {counted(tensors.negotiations, 'negotiation')} more than one rank is "
        "marked as ready"
    )
    if tensors.ticked < tensors.negotiations:
        coverage += (
            ": the response cache answers the others, unless HOROVOD_CACHE_CAPACITY=0. The page of "
            "stragglers shows late ranks in every step"
        )
    late = tensors.lateness
    if late is None:
        rows = []
    else:
        rows = [
            (
                f"rank {late_rank.rank:,}",
                f"{late_rank.last:,}",
                percent(late_rank.last / late.rounds),
                NOTHING if late_rank.delay_ms is None else amount(late_rank.delay_ms, "ms"),
            )
            for late_rank in late.ranks[:_MOST_RANKS]
        ]
        coverage += (
            f". Negotiations that overlap are one round: in {late.together:,} of "
            f"{counted(late.rounds, 'round')} all ranks came within a cycle "
            f"({amount(late.cycle_ms, 'ms')}), and no rank was late"
        )
    return data_card(
        "Last in negotiation",
        f"{coverage}.",
        ("Rank", "Rounds in which it came last", "Share of rounds", "Later than the first by"),
        rows,
    )


def timeline_steps_card(steps: AllreduceSteps) -> Any:
    """Chart the means of adjacent steps, and tabulate them one click away. None without steps."""
    if not len(steps):
        return None
    width = -(-len(steps) // _MOST_POINTS)
    first = np.arange(0, len(steps), width)
    every = {label: _means(getattr(steps, f"{name}_ms"), first) for name, label, _, _ in _PARTS}
    # Activities that are not in the timeline are missing, not 0.
    parts = {label: means for label, means in every.items() if np.nansum(means) > 0}
    if not parts:
        return None

    drawn = custom_drawing()
    for _, label, colour, dash in _PARTS:
        if label in parts:
            drawn.add_trace(
                "scatter",
                x=first,
                y=parts[label],
                name=label,
                mode="lines" if len(first) > 1 else "markers",
                line={"color": PALETTE[colour], "width": 2, "dash": dash},
                hovertemplate=f"step %{{x:,}}: {label} %{{y:.3g}} ms<extra></extra>",
            )
    drawn.update(xaxis={"title": {"text": "step of the timeline"}}, yaxis={"title": {"text": "ms"}})
    rows = [
        (int(at), *(finite(float(means[number])) for means in parts.values()))
        for number, at in enumerate(first)
    ]
    of = "" if width == 1 else f" Each point is the mean of {width:,} steps."
    return custom_chart_card(
        "timeline-steps",
        "Allreduces of each step",
        f"{counted(len(steps), 'step')} as rank 0 went through them.{of} Times count while any "
        "tensor is active: they overlap, and do not add up.",
        drawn,
        (("step", *(f"{label}_ms" for label in parts)), rows),
        legend(
            line_sample(colour, dash, label) for _, label, colour, dash in _PARTS if label in parts
        ),
        folded(AS_A_TABLE, _table(parts, rows)),
    )


def _means(values: Floats, first: np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
    """Average over the steps from each of the first ones to the next."""
    return np.add.reduceat(values.astype(np.float64), first) / np.diff(
        np.append(first, len(values))
    )


def _table(labels: Iterable[str], rows: Sequence[Sequence[Any]]) -> Any:
    cells = Cells.for_all(mean for _, *means in rows for mean in means)
    head = ["Step", *(f"{label.capitalize()}, {cells.unit}" for label in labels)]
    body = [
        [f"{at:,}", *(NOTHING if mean is None else cells.plain(mean) for mean in means)]
        for at, *means in rows
    ]
    return data_table("Allreduces of each step", head, body, words=())
