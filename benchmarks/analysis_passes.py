"""Show where the analysis of a large run takes its CPU time, pass by pass.

    python benchmarks/analysis_passes.py [--ranks 1000] [--steps 10000]

A pass is one kernel over all steps and ranks, on all cores. The unit is one bare numpy pass over the
same rows (``analysis_speed.bare``), the faster of two. The second of two analyses is shown, because the
first one imports scipy and allocates memory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from analysis_speed import Taken, _timed, bare, timed_twice
from large_run import collected

from stallscope.analysis.analyse import analyse
from stallscope.arrays import blocks
from stallscope.arrays.local_matrix import LocalMatrix
from stallscope.collector.store.loading import load_run

# Passes with smaller shares of the CPU time are summed.
_WORTH = 0.02


class _Passes:
    """CPU seconds of all threads, by kernel, and how often each ran over the run."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = defaultdict(float)
        self.times: dict[str, int] = defaultdict(int)

    def wrapped(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method of ``LocalMatrix`` that runs a kernel on blocks."""

        def timed(matrix: LocalMatrix, kernel: Callable[..., Any], *args: Any, **more: Any) -> Any:
            name = f"{kernel.__module__.rpartition('.')[2]}: {kernel.__name__.strip('_')}"
            self.times[name] += 1

            def timed_kernel(block: blocks.Block, *rest: Any) -> Any:
                begun = time.thread_time()
                answer = kernel(block, *rest)
                self.cpu[name] += time.thread_time() - begun
                return answer

            return run(matrix, timed_kernel, *args, **more)

        return timed


def measured(ranks: int, steps: int) -> tuple[_Passes, Taken, float]:
    """Analyse a run; return its passes, the times of the whole analysis, and those of the bare pass."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as store:
        run = load_run(collected(ranks, steps, Path(store)))
    times: dict[str, Taken] = {}
    timed_twice("bare", times, lambda: bare(run, ranks))
    analyse(run)
    passes = _Passes()
    methods = ("by_steps", "by_ranks", "compute_by_steps", "compute_by_ranks")
    with mock.patch.multiple(
        LocalMatrix, **{name: passes.wrapped(getattr(LocalMatrix, name)) for name in methods}
    ):
        _timed("analysis", times, lambda: analyse(run))
    return passes, times["analysis"], times["bare"].cpu


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args(arguments)
    passes, whole, unit = measured(options.ranks, options.steps)
    print("| pass | times | CPU, s | × a bare pass |")
    print("| --- | ---: | ---: | ---: |")
    few, small = 0, 0.0
    for name, cpu in sorted(passes.cpu.items(), key=lambda entry: -entry[1]):
        if cpu < _WORTH * whole.cpu:
            few, small = few + passes.times[name], small + cpu
        else:
            print(f"| {name} | {passes.times[name]} | {cpu:.2f} | {cpu / unit:.1f} |")
    print(f"| smaller ones together | {few} | {small:.2f} | {small / unit:.1f} |")
    rest = whole.cpu - sum(passes.cpu.values())
    print(f"| outside of passes | | {rest:.2f} | {rest / unit:.1f} |")
    total = sum(passes.times.values())
    print(f"| **together** | {total} | {whole.cpu:.2f} | {whole.cpu / unit:.1f} |")


if __name__ == "__main__":
    main()
