"""How long the analysis of a large run takes, stage by stage, against one bare numpy pass over its rows.

    python benchmarks/analysis_speed.py [--ranks 1000] [--steps 10000]

The run is simulated, on hosts of 8 ranks with clocks of their own. The bare pass computes what any
ledger needs (last ready, first reduced, mean stages) on one clock, with no test, interval or replay.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from figures import Figure, share_of

from stallscope.analysis.alignment import align
from stallscope.analysis.analyse import analyse
from stallscope.analysis.attribution import attribute
from stallscope.analysis.change_points import change_points
from stallscope.analysis.findings import find
from stallscope.analysis.ledger import build_ledger
from stallscope.analysis.warmup import warm_up_steps
from stallscope.run import Run
from stallscope.simulate import Clocks, Fault, Job, Noise, simulate

T = TypeVar("T")

BARE, WHOLE = "bare numpy pass", "whole analysis"


def figures(quick: bool) -> list[Figure]:
    run, times = timed(100 if quick else 1000, 200 if quick else 2000)
    name = f"analysis of {run.steps.num_rows:,} rows"
    return [share_of(name, times[WHOLE], "s", "one bare numpy pass", times[BARE])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    run, times = timed(options.ranks, options.steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"{options.ranks:,} ranks × {options.steps:,} steps = {run.steps.num_rows:,} rows\n")
    print("| stage | seconds | × the bare pass |\n| --- | ---: | ---: |")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {seconds / times[BARE]:.1f} |")
    print(f"\npeak memory {peak:.1f} GiB, the simulation's included")


def timed(ranks: int, steps: int) -> tuple[Run, dict[str, float]]:
    """A simulated run, and the seconds that each stage of its analysis takes."""
    job = Job(
        ranks=ranks,
        steps=steps,
        noise=Noise(cv=0.05),
        clocks=Clocks(offset_s=1000, drift_ppm=20),
        faults=(Fault("compute", 30, ranks=(min(3, ranks - 1),)),),
    )
    run = simulate(job).run
    times: dict[str, float] = {}
    _timed(BARE, times, lambda: bare(run, job.ranks))
    stages(run, times)
    _timed(WHOLE, times, lambda: analyse(run))
    return run, times


def stages(run: Run, times: dict[str, float]) -> None:
    """The large stages one by one; what they hold is gone before the whole is timed."""
    world = _timed("align", times, lambda: align(run, 0))
    ledger = _timed("ledger", times, lambda: build_ledger(world))
    steady = ledger.take(~warm_up_steps(ledger))
    hosts, skew = world.hosts, world.clocks.skew
    _timed("stragglers and what-if", times, lambda: attribute(steady, hosts, None, skew))
    _timed("change points", times, lambda: change_points(steady))
    _timed("findings", times, lambda: find(run, has_baseline=False))


def bare(run: Run, ranks: int) -> float:
    """What any ledger needs, on one clock: a lower bound of the work."""
    stamps = {
        name: run.steps[name].to_numpy().reshape(ranks, -1)
        for name in ("begin", "data", "ready", "reduced")
    }
    last = stamps["ready"].max(axis=0)
    first = stamps["reduced"].min(axis=0)
    fetch = (stamps["data"] - stamps["begin"]).mean(axis=1)
    compute = (stamps["ready"] - stamps["data"]).mean(axis=1)
    return float((first - last).mean() + np.median(fetch) + np.median(compute))


def _timed(name: str, times: dict[str, float], run: Callable[[], T]) -> T:
    begun = time.perf_counter()
    result = run()
    times[name] = time.perf_counter() - begun
    return result


if __name__ == "__main__":
    main()
