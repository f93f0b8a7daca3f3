"""Measure time and memory of reports on a batch of runs, against a loop over them in one process.

    python benchmarks/report_batch.py [--runs 100] [--ranks 8] [--steps 5000]

The runs are simulated, with a baseline among them, and written as logs first. Memory is the sampled
peak of all processes of a way together.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from figures import Figure, share_of
from processes import with_children
from simulator import Fault, Job, simulate, write_logs

_SAMPLE_SECONDS = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")

# What a user would write: every run stays in memory until all are reported.
_ONE_AFTER_THE_OTHER = """
import sys
from pathlib import Path
from stallscope.analysis import analyse
from stallscope.analysis.gains.baseline import find_baseline
from stallscope.reports.write import write_reports
from stallscope.opening import open_run

runs = [open_run(source) for source in sys.argv[2:]]
analyses = [analyse(one, find_baseline(one, runs)) for one in runs]
write_reports(analyses, ["html"], Path(sys.argv[1]))
"""


def figures(quick: bool) -> list[Figure]:
    count, steps = (4, 200) if quick else (40, 5_000)
    with tempfile.TemporaryDirectory() as folder:
        sources = write_runs(Path(folder) / "logs", count, ranks=8, steps=steps)
        loop = [sys.executable, "-c", _ONE_AFTER_THE_OTHER, str(Path(folder) / "loop"), *sources]
        report = [sys.executable, "-m", "stallscope", "report", "--format", "html", "--out"]
        other_s, _, other_mib = measured(loop)
        own_s, _, own_mib = measured([*report, str(Path(folder) / "batch"), *sources])
    name, alternative = f"reports on {count} runs", "a loop in one process"
    return [
        share_of(f"{name}: time", own_s, "s", alternative, other_s),
        share_of(f"{name}: largest memory", own_mib, "MiB", alternative, other_mib),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = write_runs(Path(folder) / "logs", options.runs, options.ranks, options.steps)
        report = [sys.executable, "-m", "stallscope", "report", "--format", "html"]
        quarter = sources[: max(2, len(sources) // 4)]
        ways = {
            "one after the other": (sources, [sys.executable, "-c", _ONE_AFTER_THE_OTHER, "{out}"]),
            "stallscope report --jobs 1": (sources, [*report, "--jobs", "1", "--out", "{out}"]),
            "stallscope report": (sources, [*report, "--out", "{out}"]),
            "stallscope report, a quarter of them": (quarter, [*report, "--out", "{out}"]),
        }
        print(f"{options.runs} runs of {options.ranks} ranks × {options.steps:,} steps\n")
        print("| way | seconds | CPU seconds | per run, ms | × the first | peak memory, MiB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        first = None
        for name, (runs, words) in ways.items():
            out = str(Path(folder) / name)
            seconds, cpu, peak = measured([*(word.replace("{out}", out) for word in words), *runs])
            each = seconds / len(runs)
            first = first or each
            times = f"{seconds:.1f} | {cpu:.1f} | {each * 1e3:.0f} | {each / first:.2f}"
            print(f"| {name} | {times} | {peak:.0f} |")
        again = [
            *(word.replace("{out}", str(Path(folder) / "stallscope report")) for word in report)
        ]
        again += ["--out", str(Path(folder) / "stallscope report"), *sources]
        repeated = [measured(again)[0] for _ in range(3)]
        print(f"\nall reports exist already: {statistics.median(repeated):.1f} s")


def write_runs(folder: Path, count: int, ranks: int, steps: int) -> list[str]:
    """Write the logs of so many runs of one job, the first of them on synthetic data."""
    job = Job(ranks=ranks, steps=steps, epochs=5, input_ms=20.0, facts={"model": "m"})
    sources = []
    for number in range(count):
        numbered = replace(job, run_id=f"run-{number:04d}", seed=number)
        if number == 0:
            numbered = numbered.baseline()
        elif number % 3 == 0:
            numbered = replace(numbered, faults=[Fault("compute", 40, ranks=(number % ranks,))])
        place = folder / numbered.run_id
        write_logs(simulate(numbered), place)
        sources.append(str(place))
    return sources


def measured(words: list[str]) -> tuple[float, float, float]:
    """Return a program's seconds, CPU seconds, and peak MiB, with its children."""
    begun, cpu = time.perf_counter(), _cpu_seconds()
    peak = 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(_resident, with_children(process.pid))))
            time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        sys.exit(f"{' '.join(words[:6])} … ended with {process.returncode}")
    return time.perf_counter() - begun, _cpu_seconds() - cpu, peak * _PAGE / 2**20


def _cpu_seconds() -> float:
    """Return the CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    main()
