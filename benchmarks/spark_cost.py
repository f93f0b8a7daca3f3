"""Measure what a row costs on Spark against one machine, and project the cost of a billion rows.

    python benchmarks/spark_cost.py [--ranks 1000] [--steps 2000 10000 40000] [--cores 2]

Runs of several lengths are analysed on both, by the same code. A straight line over the lengths
separates the fixed cost of an analysis from the cost of a row; start-up is left out. Executors are
local, each with its own Python, with as many cores as this machine. CPU seconds are those of all
processes: the driver, which more executors do not relieve, and the executors with their JVM.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from figures import Figure, share_of
from large_run import collected
from processes import stat_fields, with_children

from stallscope.analysis.analyse import analyse
from stallscope.batch.units import Unit
from stallscope.collector.store.loading import load_run
from stallscope.spark import each, remote_steps, spark_cells
from stallscope.spark.reporting import remote_runs
from stallscope.spark.spark_collecting import session

_BILLION = 10**9
_CLUSTERS = (32, 256)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """The cost of analysing one run."""

    rows: int
    seconds: float = 0.0
    #: CPU seconds of this process, and of its descendants.
    own_cpu: float = 0.0
    executors_cpu: float = 0.0
    #: Spark's jobs and tasks, and the bytes in the folder for intermediate files.
    jobs: int = 0
    tasks: int = 0
    scratch: int = 0

    @property
    def cpu(self) -> float:
        return self.own_cpu + self.executors_cpu


@dataclass(frozen=True)
class Line:
    """A straight line over the rows: the fixed cost of an analysis, and the cost of a row."""

    fixed: float
    per_row: float

    def at(self, rows: float) -> float:
        return self.fixed + self.per_row * rows


def figures(quick: bool) -> list[Figure]:
    steps = (1_000, 2_000) if quick else (2_000, 8_000)
    _, on_spark, here = measured(1000, steps)
    ratio_name = f"analysis on Spark of {on_spark[-1].rows:,} rows: CPU per row"
    spark_row, own_row = (line(costs, _cpu).per_row * 1e6 for costs in (on_spark, here))
    return [share_of(ratio_name, spark_row, "µs", "one machine", own_row)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, nargs="+", default=[2_000, 10_000, 40_000])
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    options = parser.parse_args()
    startup, on_spark, here = measured(options.ranks, options.steps, options.cores)
    print(f"Spark starts in {startup:.1f} s on {options.cores} cores; it is in no other figure.\n")
    _print_costs(on_spark, here)
    _print_lines(on_spark, here)
    _print_billion(on_spark, here)


def measured(
    ranks: int, steps: Sequence[int], cores: int | None = None
) -> tuple[float, list[Cost], list[Cost]]:
    """Analyse runs of some lengths.

    Returns:
        The seconds until Spark and its Pythons were there, what each run cost on Spark, and on this
        machine.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--master local[{cores or os.cpu_count()}] --driver-memory 2g "
        "--conf spark.ui.enabled=false --conf spark.log.level=ERROR "
        "--conf spark.ui.showConsoleProgress=false pyspark-shell"
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        store = Path(name)
        folders = [collected(ranks, count, store / str(count)) for count in steps]
        # The first analysis imports scipy, here and on executors.
        small = collected(8, 2_000, store / "small")
        here = [_here(folder) for folder in (small, *folders)][1:]
        begun = time.perf_counter()
        with session() as spark:
            each.each(spark, exec, ["import scipy.stats"] * (cores or os.cpu_count() or 1))
            startup = time.perf_counter() - begun
            on_spark = [_on_spark(spark, folder) for folder in (folders[0], *folders)][1:]
    return startup, on_spark, here


def line(costs: Sequence[Cost], of: Callable[[Cost], float]) -> Line:
    """Return the line through the costs; of two or three points, an interval would say nothing."""
    per_row, fixed = np.polyfit([cost.rows for cost in costs], [of(cost) for cost in costs], 1)
    return Line(float(fixed), float(per_row))


def _cpu(cost: Cost) -> float:
    return cost.cpu


def _here(folder: Path) -> Cost:
    with _counting(Cost(0)) as cost:
        run = load_run(folder)
        cost.rows = run.steps.num_rows
        analyse(run)
    return cost


def _on_spark(spark: Any, folder: Path) -> Cost:
    with remote_runs(spark, str(folder.parent)) as runs, _counting(Cost(0)) as cost:
        # Short runs stay on executors, too, like long ones.
        with mock.patch("stallscope.spark.reporting.MOST_ROWS_ON_DRIVER", 0), _jobs_counted(cost):
            run = runs.read(Unit(str(folder), collected=True), None)
            cost.rows = run.steps.num_rows
            analysis = analyse(run)
        scratch = folder.parent.glob(".stallscope-spark-*/**/*")
        cost.scratch = sum(file.stat().st_size for file in scratch if file.is_file())
        del analysis, run
    return cost


@contextmanager
def _counting(cost: Cost) -> Iterator[Cost]:
    begun, process_s, others = time.perf_counter(), time.process_time(), _cpu_of_descendants()
    yield cost
    cost.seconds = time.perf_counter() - begun
    cost.own_cpu = time.process_time() - process_s
    cost.executors_cpu = _cpu_of_descendants() - others


@contextmanager
def _jobs_counted(cost: Cost) -> Iterator[None]:
    def counted(spark: Any, function: Any, tasks: Sequence[Any], *shared: Any) -> Any:
        cost.jobs, cost.tasks = cost.jobs + 1, cost.tasks + len(tasks)
        return each.each(spark, function, tasks, *shared)

    with mock.patch.object(spark_cells, "each", counted), mock.patch.object(
        remote_steps, "each", counted
    ):
        yield


def _cpu_of_descendants() -> float:
    """Return the CPU seconds of all descendants of this process, including those that have ended."""
    used = 0
    for process in with_children(os.getpid())[1:]:
        # The parent of one that has ended counts its seconds.
        with suppress(OSError):
            used += sum(map(int, stat_fields(process)[11:15]))
    return used / _TICKS


def _print_costs(on_spark: Sequence[Cost], here: Sequence[Cost]) -> None:
    print("| rows | Spark: s | driver, CPU s | executors, CPU s | jobs | tasks | intermediate files, GB "
          "| one machine: s | CPU s |")  # fmt: skip
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for far, near in zip(on_spark, here, strict=True):
        print(
            f"| {far.rows:,} | {far.seconds:.1f} | {far.own_cpu:.1f} | {far.executors_cpu:.1f} "
            f"| {far.jobs} | {far.tasks} | {far.scratch / 1e9:.2f} "
            f"| {near.seconds:.1f} | {near.cpu:.1f} |"
        )


def _print_lines(on_spark: Sequence[Cost], here: Sequence[Cost]) -> None:
    print("\n| CPU | per analysis, s | per row, µs |\n| --- | ---: | ---: |")
    for name, costs, of in (
        ("driver", on_spark, lambda cost: cost.own_cpu),
        ("executors", on_spark, lambda cost: cost.executors_cpu),
        ("one machine", here, _cpu),
    ):
        fitted = line(costs, of)
        print(f"| {name} | {fitted.fixed:.2f} | {fitted.per_row * 1e6:.3f} |")


def _print_billion(on_spark: Sequence[Cost], here: Sequence[Cost]) -> None:
    """Project a billion rows: all cores share what executors compute, the driver computes alone."""
    always = line(on_spark, lambda cost: cost.seconds).fixed
    driver = line(on_spark, lambda cost: cost.own_cpu).per_row * _BILLION
    shared = line(on_spark, lambda cost: cost.executors_cpu).per_row * _BILLION
    print(f"\nOn paper, {_BILLION:,} rows take {always:.0f} s like every analysis, {driver:.0f} s")
    print(f"of the driver, and {shared:,.0f} s of executors' cores together:")
    for many in _CLUSTERS:
        print(f"- on {many} cores {always + driver + shared / many:,.0f} s")
    print(f"- on this machine {line(here, lambda cost: cost.seconds).at(_BILLION):,.0f} s")
    scratch = line(on_spark, lambda cost: cost.scratch).at(_BILLION)
    print(f"Intermediate files on Spark take {scratch / 1e9:,.0f} GB.")


if __name__ == "__main__":
    main()
