"""Measure the CPU time of a command on a small run, most of which is imports.

Its floor is Python with numpy and Arrow, which every command that reads logs needs. CPU time depends
less on the machine's other load than duration does, and the smallest of several is least disturbed.
Bytecode is cached first, as by an installation.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, at_most, share_of
from peers import ROOT

RUN = ROOT / "sample_logs" / "slow-input-one-rank"
FLOOR = "python, numpy and pyarrow"
PROGRAMS = {
    "report": ["-m", "stallscope", "report", str(RUN)],
    "summary": ["-m", "stallscope", "summary", str(RUN)],
    "import": ["-c", "import stallscope"],
    "python": ["-c", "pass"],
    FLOOR: ["-c", "import numpy, pyarrow"],
}
LIMIT_MS, IMPORT_MS = 800, 150
#: Of a report, in times of its floor.
MOST = 4


def figures(quick: bool) -> list[Figure]:
    order = random.Random(7)
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with TemporaryDirectory() as folder:
        for name in PROGRAMS:
            cpu_ms(name, Path(folder))
        for _ in range(1 if quick else 12):
            for name in order.sample(sorted(PROGRAMS), len(PROGRAMS)):
                times[name].append(cpu_ms(name, Path(folder)))
    least = {name: min(samples) for name, samples in times.items()}
    return [
        at_most("stallscope report of a small run, CPU time", least["report"], "ms", LIMIT_MS),
        share_of(
            "stallscope report of a small run, against its floor",
            least["report"],
            "ms",
            FLOOR,
            least[FLOOR],
            most=MOST,
        ),
        share_of(
            "stallscope summary of it, against its floor",
            least["summary"],
            "ms",
            FLOOR,
            least[FLOOR],
        ),
        at_most("import stallscope", least["import"] - least["python"], "ms", IMPORT_MS),
    ]


def cpu_ms(name: str, cache: Path) -> float:
    """Return the CPU time of a program; its bytecode is cached in a folder."""
    # Idle threads of OpenBLAS spin while a core is free.
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache), "OPENBLAS_NUM_THREADS": "1"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, *PROGRAMS[name]]
    subprocess.run(words, env=variables, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3
