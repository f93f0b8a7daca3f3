"""Write the computed tables of docs/scale.md and docs/scorecard/projections.md.

python benchmarks/pages.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path

import numpy as np

from stallscope.analysis.scaling import held_out
from stallscope.collector.recorder.step_log.line_format import BLOCK
from stallscope.collector.recorder.step_log.log_files import (
    COPIED_PART_BYTES,
    COPY_SECONDS,
    FIRST_UPLOAD_REQUESTS,
    FIRST_UPLOAD_SECONDS,
    LONGEST_LAST_TURN_SECONDS,
    next_pause_seconds,
    shortest_pause_seconds,
    turn_seconds,
)
from stallscope.formatting.numbers import percent

DOCS = Path(__file__).parents[1] / "docs"
SIZES = (64, 512, 4_096, 10_000)
#: The page's job; a row is one step of one rank.
HOURS = 10
STEPS_PER_SECOND = 5
BYTES_PER_ROW = 51
#: (sample_after, sample_one_in)
SAMPLINGS = ((2_000, 20), (2_000, 200))

# Bytes of an empty collector, per log and per row, as recording_scale.py measured them on 256 and 4,096
# ranks with 60 and 400 steps.
_MEMORY, _MEMORY_PER_LOG, _MEMORY_PER_ROW = 230e6, 31e3, 182
# Sums of steps that are left out are written at least once a minute.
_SKIPPED_ROWS = HOURS * 60
_SECONDS = HOURS * 3_600
_LOG_BYTES = _SECONDS * STEPS_PER_SECOND * BYTES_PER_ROW
_ROWS_PER_SECOND = STEPS_PER_SECOND * BYTES_PER_ROW

Row = tuple[str, Callable[[int], str]]


def main() -> None:
    for name, lines in {
        "scale": scale_table(),
        "scorecard/projections": projections_table(),
    }.items():
        path = DOCS / f"{name}.md"
        path.write_text(with_table(path.read_text(), lines))


def with_table(text: str, lines: Sequence[str]) -> str:
    """Return the page with this table between its markers.

    Raises:
        ValueError: if the markers are not there.
    """
    begins, ends = "<!-- table -->\n", "<!-- /table -->"
    before, begin, rest = text.partition(begins)
    _, end, after = rest.partition(ends)
    if not begin or not end:
        raise ValueError(f"the page has no {begins.strip()} … {ends}")
    return before + begin + "".join(f"{line}\n" for line in lines) + end + after


def scale_table() -> list[str]:
    """Return the load of all ranks of the job together, by their number."""
    head = ["| | " + " | ".join(f"{size:,} ranks" for size in SIZES) + " |"]
    head += ["| --- |" + " ---: |" * len(SIZES)]
    return head + [
        f"| {name} | " + " | ".join(value(size) for size in SIZES) + " |" for name, value in _ROWS
    ]


def projections_table() -> list[str]:
    """Return every projection on a published curve, and its error."""
    lines = [
        "| curve | fitted to | projected to | efficiency projected | published | throughput off by | |",
        "| --- | --- | ---: | --- | ---: | ---: | --- |",
    ]
    for projection in held_out():
        efficiency = projection.projected
        low, high = efficiency.ci95 or (efficiency.value, efficiency.value)
        lines.append(
            f"| {projection.curve.name} | {', '.join(map(str, projection.sizes))} | "
            f"{projection.ranks} | {percent(efficiency.value)} ({percent(low)} to {percent(high)}) | "
            f"{percent(projection.published)} | {projection.error:+.0%} | "
            f"{'inside' if projection.inside else 'outside'} |"
        )
    return lines


def uploads(size: int) -> list[float]:
    """Return the seconds at which the first rank uploads during training."""
    pause = now = FIRST_UPLOAD_SECONDS
    times = []
    while now < _SECONDS:
        times.append(now)
        pause = next_pause_seconds(pause, now, size)
        now += pause
    return times


def requests_in_busiest_minute(size: int) -> int:
    """Return the requests of all ranks to MLflow's server in the busiest minute."""
    moments = uploads(size)
    turns = np.array([turn_seconds(rank, size, FIRST_UPLOAD_REQUESTS) for rank in range(size)])
    times = np.sort(np.add.outer([moments[0], moments[0], *moments], turns), axis=None)
    # For each request, those within the minute that ends with it.
    first = np.searchsorted(times, times - 60, side="right")
    return int((np.arange(len(times)) - first).max()) + 1


def copy_seconds(size: int) -> float:
    """Return the seconds between two copies of a spooled log, where epochs are longer."""
    return max(COPY_SECONDS, shortest_pause_seconds(size))


def part_bytes(size: int) -> float:
    """Return the size of a spooled log's part: it starts another file when it copies a full one."""
    grown = _ROWS_PER_SECOND * copy_seconds(size)
    return ceil(COPIED_PART_BYTES / grown) * grown


def copied_bytes(size: int) -> float:
    """Return the bytes that a rank copies of its spooled log: each copy repeats the current part."""
    part, grown = part_bytes(size), _ROWS_PER_SECOND * copy_seconds(size)
    return _LOG_BYTES / part * sum(grown * count for count in range(1, round(part / grown) + 1))


def rows_of_rank(sampling: tuple[int, int] | None) -> float:
    """Return a rank's rows: all steps, or the first ones and sampled blocks with the step before."""
    steps = _SECONDS * STEPS_PER_SECOND
    if sampling is None:
        return steps
    after, one_in = sampling
    return after + (steps - after) / one_in * (BLOCK + 1) / BLOCK + _SKIPPED_ROWS


def memory(size: int, sampling: tuple[int, int] | None) -> float:
    """Return the bytes of a collector that reads the whole job."""
    return _MEMORY + size * (_MEMORY_PER_LOG + rows_of_rank(sampling) * _MEMORY_PER_ROW)


def _amount(value: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


_ROWS: tuple[Row, ...] = (
    ("**folder**: files, with `run.json`", lambda size: _count(size + 1)),
    ("bytes", lambda size: _amount(size * _LOG_BYTES)),
    ("bytes per second", lambda size: _amount(size * _ROWS_PER_SECOND)),
    (
        "**mount that takes whole files**: files",
        lambda size: _count(size * ceil(_LOG_BYTES / part_bytes(size)) + 1),
    ),
    ("copies per minute", lambda size: _count(size * 60 / copy_seconds(size))),
    ("bytes copied", lambda size: _amount(size * copied_bytes(size))),
    ("**MLflow**: artifacts", lambda size: _count(size * (len(uploads(size)) + 1))),
    ("requests in the busiest minute", lambda size: _count(requests_in_busiest_minute(size))),
    (
        "requests per second when training ends",
        lambda size: _count(
            size / max(1.0, min(shortest_pause_seconds(size), LONGEST_LAST_TURN_SECONDS))
        ),
    ),
    ("requests that list it all", lambda size: _count(size + 3)),
    ("**bucket**: requests that fetch what has grown, a look", lambda size: _count(2 * size)),
    ("**collector**: rows", lambda size: _count(size * rows_of_rank(None))),
    ("memory", lambda size: _amount(memory(size, None))),
    *(
        (
            f"memory, `sample_after={after}, sample_one_in={one_in}`",
            lambda size, sampling=(after, one_in): _amount(memory(size, sampling)),
        )
        for after, one_in in SAMPLINGS
    ),
)


if __name__ == "__main__":
    main()
