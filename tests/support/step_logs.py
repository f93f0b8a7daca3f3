"""Step logs of small simulated jobs, in the recorder's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import simulator

from stallscope.parsers import read
from stallscope.run import Run

MS = 1_000_000


@dataclass(frozen=True)
class Job:
    """A job; times in milliseconds. ``slow`` adds to a stage on a rank: ``{(1, "input"): 30}``."""

    ranks: int = 2
    steps: int = 300
    epochs: int = 1
    input_ms: float = 1.0
    compute_ms: float = 20.0
    other_ms: float = 1.0
    allreduce_ms: float = 3.0
    #: Coefficient of variation of every stage, independent in every step.
    noise: float = 0.02
    slow: Mapping[tuple[int, str], float] = field(default_factory=dict)
    #: Added to the first step: tracing.
    tracing_ms: float = 500.0
    #: On all ranks.
    validation_ms: float = 0.0
    checkpoint_ms: float = 0.0
    #: Consecutive ranks share a host.
    hosts: Sequence[str] = ("alpha",)
    #: Per host, how far its monotonic clock is ahead; repeated if there are more hosts.
    clock_offset_ms: Sequence[float] = (0.0,)
    batch_size: int = 32
    stamps: bool = True
    run_id: str = "run-a"
    generation: int = 0
    first_step: int = 0
    seed: int = 1
    facts: Mapping[str, object] = field(default_factory=dict)


#: The last jobs' logs by file name: many tests start from the same job.
_LOGS: dict[str, dict[str, bytes]] = {}
_MOST_JOBS = 100
_MOST_ROWS = 10_000


def write_job(folder: Path, job: Job = Job()) -> list[Path]:
    """Simulate the job and write one log per rank; return the paths by rank."""
    # Equal jobs have equal logs, and all that a job consists of is printed.
    key = repr(job)
    if key not in _LOGS:
        paths = simulator.write_logs(simulator.simulate(simulated_job(job)), folder)
        if job.ranks * job.steps <= _MOST_ROWS:
            _LOGS[key] = {path.name: path.read_bytes() for path in paths}
            if len(_LOGS) > _MOST_JOBS:
                del _LOGS[next(iter(_LOGS))]
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in _LOGS[key]]
    for path, log in zip(paths, _LOGS[key].values(), strict=True):
        path.write_bytes(log)
    return paths


def forget_stages(folder: Path) -> None:
    """Remove *ready* and *reduced* from all logs, as if they could not be taken."""
    for path in folder.glob("*.csv"):
        lines = (line.split(",") for line in path.read_text().splitlines())
        kept = (
            [*cells[:5], "", "", *cells[7:]] if cells[0] == "step" else cells for cells in lines
        )
        path.write_text("\n".join(map(",".join, kept)) + "\n")


def run_of_job(folder: Path, job: Job = Job()) -> Run:
    """Write the logs of a job and read them back as its one run."""
    write_job(folder, job)
    (run,) = read(str(folder))
    return run


def simulated_job(job: Job) -> simulator.Job:
    """Return the same job as ``simulate`` describes it."""
    ahead = job.clock_offset_ms
    return simulator.Job(
        ranks=job.ranks,
        steps=job.steps,
        epochs=job.epochs,
        ranks_per_host=-(-job.ranks // len(job.hosts)),
        input_ms=job.input_ms,
        compute_ms=job.compute_ms,
        other_ms=job.other_ms,
        communication=simulator.Fixed(job.allreduce_ms),
        noise=simulator.Noise(cv=job.noise, phi=0),
        jitter_ms=0,
        clocks=simulator.Clocks(
            offsets_ms=[ahead[host % len(ahead)] for host in range(len(job.hosts))]
        ),
        faults=[
            simulator.Fault(stage, ms, ranks=(rank,), cv=0)
            for (rank, stage), ms in job.slow.items()
        ],
        batch_size=job.batch_size,
        tracing_ms=job.tracing_ms,
        validation_ms=job.validation_ms,
        checkpoint_ms=job.checkpoint_ms,
        checkpoint_ranks=None,
        epoch_gap_ms=5,
        stamps=job.stamps,
        run_id=job.run_id,
        generation=job.generation,
        first_step=job.first_step,
        seed=job.seed,
        facts={"framework": "tensorflow", "model": "made", **job.facts},
        host_names=job.hosts,
    )
