"""The ledger of a run as a straightforward pandas groupby has it, against ours, over growing runs.

    python benchmarks/ledger_pandas.py [--large] [--picture FILE]

``ledger_by_pandas`` is what one would write in a notebook: it is the alternative, and a check of our
results. Both begin with the same table of stamps, on one clock; ours aligns the ranks first.
``--large`` goes on to 10⁸ rows, of which pandas would need some 40 GB: there, ours is alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from figures import Figure, times_faster
from large_run import collected
from ledger_picture import picture

from stallscope.analysis.alignment import align
from stallscope.analysis.ledger import Ledger, build_ledger
from stallscope.collector.loading import load_run
from stallscope.run import Run
from stallscope.simulate import Job, Noise, simulate

RANKS = 100
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
LARGE = 100_000_000
QUICK = ROWS[:2]
PICTURE = Path(__file__).parents[1] / "docs" / "ledger-cost.svg"
# The target is for runs that take time at all.
DECIDES_FROM_ROWS = 1_000_000
LEAST = 10.0


@dataclass(frozen=True)
class Timed:
    """Seconds that both take for a run of so many rows."""

    rows: int
    ours: float
    #: None where it was not tried.
    pandas: float | None


def figures(quick: bool) -> list[Figure]:
    # The picture in docs/ is drawn by this program itself, with --large: 10⁸ rows take minutes.
    timed = measured(QUICK if quick else ROWS)
    return [
        times_faster(
            f"ledger of {one.rows:,} rows",
            one.ours,
            "s",
            "pandas groupby",
            one.pandas,
            least=LEAST if one.rows >= DECIDES_FROM_ROWS else None,
        )
        for one in timed
        if one.pandas is not None
    ]


def ledger_by_pandas(steps: pd.DataFrame) -> pd.DataFrame:
    """Entries of the ledger per step, nanoseconds, for a run without gaps on one clock."""
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
    """A run of so many rows; on one host, for pandas has one clock only."""
    ranks = RANKS
    return simulate(
        Job(ranks=ranks, steps=rows // ranks, ranks_per_host=ranks, noise=Noise(cv=0.05))
    ).run


def measured(sizes: tuple[int, ...]) -> list[Timed]:
    found = []
    for rows in sizes:
        if rows >= LARGE:
            with tempfile.TemporaryDirectory(dir="/var/tmp") as store:
                run = load_run(collected(RANKS, rows // RANKS, Path(store)))
                found.append(Timed(rows, _seconds(ours, run, 1), None))
            continue
        run = simulated(rows)
        # The faster of three, for small ones: the first has imports and caches to fill.
        times = 3 if rows < DECIDES_FROM_ROWS * 10 else 1
        found.append(Timed(rows, _seconds(ours, run, times), _seconds(by_pandas, run, times)))
    return found


def _seconds(work: Callable[[Run], object], run: Run, times: int) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work(run)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="up to 10⁸ rows")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    timed = measured((*ROWS, LARGE) if options.large else ROWS)
    print("| rows | ours, s | pandas, s | × as fast |\n| ---: | ---: | ---: | ---: |")
    for one in timed:
        other = "" if one.pandas is None else f"{one.pandas:.3f}"
        ratio = "" if one.pandas is None else f"{one.pandas / one.ours:.1f}"
        print(f"| {one.rows:,} | {one.ours:.3f} | {other} | {ratio} |")
    options.picture.write_text(picture(timed))


if __name__ == "__main__":
    main()
