"""Time the ledger of a run against a straightforward pandas groupby, over growing runs.

    python benchmarks/ledger_pandas.py [--large] [--picture FILE]

``ledger_by_pandas`` is what a user would write in a notebook; tests check our results against it. Both
start with the same table of timestamps, on one clock; ours aligns the ranks first. ``--large`` also
times ours from collected runs of up to 10⁸ rows, reading included; pandas would need some 40 GB.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pandas as pd
from figures import Figure, times_faster
from large_run import collected
from ledger_picture import Timed, picture
from simulator import Job, Noise, simulate

from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.steps.alignment import align
from stallscope.collector.store.loading import load_run
from stallscope.run import Run

T = TypeVar("T")

RANKS = 100
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
LARGE = 100_000_000
QUICK = ROWS[:2]
PICTURE = Path(__file__).parents[1] / "docs" / "ledger-cost.svg"
# The target does not apply to tiny runs.
DECIDES_FROM_ROWS = 1_000_000
LEAST = 10.0


def figures(quick: bool) -> list[Figure]:
    # With --large, this program also draws the chart in docs/: 10⁸ rows take minutes.
    timed = [in_memory(rows) for rows in (QUICK if quick else ROWS)]
    return [
        times_faster(
            f"ledger of {timing.rows:,} rows",
            timing.ours,
            "s",
            "pandas groupby",
            timing.pandas,
            least=LEAST if timing.rows >= DECIDES_FROM_ROWS else None,
        )
        for timing in timed
        if timing.ours is not None and timing.pandas is not None
    ]


def ledger_by_pandas(steps: pd.DataFrame) -> pd.DataFrame:
    """Compute the ledger's entries per step in nanoseconds, for a run without gaps on one clock."""
    by_step = steps.groupby("step")
    ended = pd.concat([by_step["reduced"].min(), by_step["ready"].max()], axis=1).max(axis=1)
    start = ended.shift(1)
    start.iloc[0] = by_step["begin"].min().iloc[0]
    steps = steps.assign(
        arrival=steps["ready"] - steps["step"].map(start.astype("int64")),
        input=steps["data"] - steps["begin"],
        compute=steps["ready"] - steps["data"],
    )
    in_order = steps.sort_values(["step", "arrival"]).groupby("step")
    reference = in_order.nth((steps["rank"].nunique() - 1) // 2).set_index("step")
    last = steps.groupby("step")["arrival"].max()
    return pd.DataFrame(
        {
            "input": reference["input"],
            "compute": reference["compute"],
            "other": reference["arrival"] - reference["input"] - reference["compute"],
            "imbalance": last - reference["arrival"],
            "allreduce": ended - by_step["ready"].max(),
        }
    )


def ours(run: Run) -> Ledger:
    return build_ledger(align(run, 0))


def by_pandas(run: Run) -> pd.DataFrame:
    columns = ["rank", "step", "begin", "data", "ready", "reduced"]
    return ledger_by_pandas(run.steps.select(columns).to_pandas())


def simulated(rows: int) -> Run:
    """Simulate a run of so many rows on one host, as pandas has one clock only."""
    ranks = RANKS
    return simulate(
        Job(ranks=ranks, steps=rows // ranks, ranks_per_host=ranks, noise=Noise(cv=0.05))
    ).run


def in_memory(rows: int) -> Timed:
    """Time both from a table in memory."""
    run = simulated(rows)
    return Timed(rows, _seconds(ours, run, _times(rows)), _seconds(by_pandas, run, _times(rows)))


def from_disk(rows: int) -> float:
    """Time ours from a collected run."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as store:
        folder = collected(RANKS, rows // RANKS, Path(store))
        # Writing is not part of the timed work.
        os.sync()
        return _seconds(lambda place: ours(load_run(place)), folder, _times(rows))


def _times(rows: int) -> int:
    """Return the fastest of some times for small runs: the first one also fills caches and allocates."""
    return 7 if rows < DECIDES_FROM_ROWS * 10 else 1


def _seconds(work: Callable[[T], object], subject: T, times: int) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work(subject)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def _cell(value: float | None, digits: int) -> str:
    return "|" if value is None else f"{value:.{digits}f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="up to 10⁸ rows")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    timed = [in_memory(rows) for rows in ROWS]
    if options.large:
        timed = [replace(timing, collected=from_disk(timing.rows)) for timing in timed]
        timed.append(Timed(LARGE, None, None, from_disk(LARGE)))
    print("| rows | ours, s | pandas, s | × as fast | ours from disk, s |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for timing in timed:
        ratio = timing.pandas / timing.ours if timing.pandas and timing.ours else None
        seconds = (_cell(value, 3) for value in (timing.ours, timing.pandas))
        print(f"| {timing.rows:,} |", *seconds, _cell(ratio, 1), _cell(timing.collected, 3))
    options.picture.write_text(picture(timed))


if __name__ == "__main__":
    main()
