"""Step logs of simulated jobs with consecutive generations of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from simulator import Clocks, Job, Noise, simulate, write_logs

S = 1_000_000_000
TIMES = ("begin", "data", "ready", "reduced", "end")
HOSTS = ("alpha", "beta", "gamma")
# How far the hosts' clocks are ahead: monotonic clocks by hours, wall clocks like unsynchronized
# ones.
AHEAD_S = {"alpha": 0.0, "beta": 7.3, "gamma": -2.1}


@dataclass(frozen=True)
class Generation:
    """A generation: the host of each rank, and its process's own number of the generation."""

    ranks: tuple[tuple[str, int], ...]
    #: When its first step starts, seconds after the first generation's.
    begin_s: float
    first_step: int
    steps: int


# A job of two hosts; a third one joins and counts from 0; then beta's rank is killed.
GROWN_AND_SHRUNK = (
    Generation((("alpha", 0), ("beta", 0)), 0.0, 0, 60),
    Generation((("alpha", 1), ("beta", 1), ("gamma", 0)), 12.0, 50, 70),
    Generation((("alpha", 2), ("gamma", 1)), 60.0, 115, 80),
)
PIDS = {"alpha": 71, "beta": 72, "gamma": 73}


def write_generations(
    folder: Path, generations: tuple[Generation, ...], wall_ahead_s: Mapping[str, float] = AHEAD_S
) -> None:
    """Simulate generations and write their logs, with hosts' wall clocks ahead by these seconds."""
    parts: dict[tuple[int, int], int] = {}
    for number, generation in enumerate(generations):
        job = Job(
            ranks=len(generation.ranks),
            steps=generation.steps,
            ranks_per_host=1,
            first_step=generation.first_step,
            compute_ms=20.0,
            noise=Noise(cv=0.1),
            clocks=Clocks(offsets_ms=[0.0] * len(generation.ranks)),
            seed=number + 1,
        )
        simulated = simulate(job)
        run = simulated.run
        later = round(generation.begin_s * S)
        logs = []
        for log, (host, counted) in zip(run.logs, generation.ranks, strict=True):
            part = parts.get((log.rank, counted), 0)
            parts[log.rank, counted] = part + 1
            anchor = log.facts["anchor"]
            facts = {
                **log.facts,
                "host": host,
                "clock_domain": host,
                "pid": PIDS[host],
                "generation": counted,
                "part": part,
                # The same start of the process in all of its logs.
                "process_start_us": -5_000_000 - later // 1000,
                "anchor": {
                    "monotonic_ns": anchor["monotonic_ns"] + later,
                    "wall_ns": anchor["wall_ns"] + later + round(wall_ahead_s[host] * S),
                },
            }
            logs.append(replace(log, facts=facts, generation=counted, part=part))
        moved = replace(
            run,
            logs=tuple(logs),
            steps=_later(run.steps, TIMES, later),
            intervals=_later(run.intervals, ("begin", "end"), later),
        )
        write_logs(replace(simulated, run=moved), folder)


def _later(table: pa.Table, names: tuple[str, ...], ns: int) -> pa.Table:
    for name in names:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(table[name].to_numpy() + ns))
    return table
