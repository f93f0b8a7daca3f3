"""Makes step logs of a job with known stage times, in the recorder's own format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stallscope.collector.recorder.format import (
    CHECKPOINT,
    END,
    EPOCH,
    VALIDATION,
    IntervalRow,
    RowFormatter,
    StepRow,
    file_name,
    header,
)

MS = 1_000_000
#: Some moment of 2026, for anchors.
WALL_NS = 1_790_000_000_000_000_000


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
    #: Coefficient of variation of every stage.
    noise: float = 0.02
    slow: Mapping[tuple[int, str], float] = field(default_factory=dict)
    #: Added to the first step: tracing.
    tracing_ms: float = 500.0
    validation_ms: float = 0.0
    checkpoint_ms: float = 0.0
    hosts: Sequence[str] = ("alpha",)
    #: Per host, how far its monotonic clock is ahead.
    clock_offset_ms: Sequence[float] = (0.0,)
    batch_size: int = 32
    stamps: bool = True
    run_id: str = "run-a"
    generation: int = 0
    first_step: int = 0
    seed: int = 1
    facts: Mapping[str, object] = field(default_factory=dict)


def write_job(folder: Path, job: Job = Job()) -> list[Path]:
    """Simulate the job and write one log per rank; the paths, by rank."""
    random = np.random.default_rng(job.seed)
    writers = [_Writer(folder, job, rank) for rank in range(job.ranks)]
    now = np.full(job.ranks, 1_000 * MS)
    per_epoch = -(-job.steps // job.epochs)
    for number in range(job.steps):
        epoch = number // per_epoch
        if number % per_epoch == 0:
            now = now + (5 * MS if number else 0)
            epoch_began = now.copy()
        other, batch, compute = (
            _stage(job, random, name, mean)
            for name, mean in (
                ("other", job.other_ms),
                ("input", job.input_ms),
                ("compute", job.compute_ms),
            )
        )
        if number == 0:
            compute = compute + int(job.tracing_ms * MS)
        begin = now + other
        data = begin + batch
        ready = data + compute
        done = int(ready.max() + max(0.1, random.normal(1, job.noise)) * job.allreduce_ms * MS)
        reduced = np.full(job.ranks, done)
        for rank, writer in enumerate(writers):
            writer.step(
                number, epoch, begin[rank], data[rank], ready[rank], reduced[rank], done + 200_000
            )
        now = reduced + 200_000
        if (number + 1) % per_epoch == 0 or number + 1 == job.steps:
            for rank, writer in enumerate(writers):
                at = int(now[rank])
                for kind, ms in ((VALIDATION, job.validation_ms), (CHECKPOINT, job.checkpoint_ms)):
                    if ms:
                        writer.interval(kind, number + 1, epoch, at, at + int(ms * MS))
                        at += int(ms * MS)
                writer.interval(EPOCH, number + 1, epoch, int(epoch_began[rank]), at)
                now[rank] = at
    for rank, writer in enumerate(writers):
        writer.interval(END, job.steps, None, int(now[rank]), int(now[rank]))
        writer.close()
    return [writer.path for writer in writers]


def _stage(job: Job, random: np.random.Generator, name: str, mean: float) -> np.ndarray:
    noise = random.normal(1, job.noise, job.ranks).clip(0.2)
    extra = np.array([job.slow.get((rank, name), 0.0) for rank in range(job.ranks)])
    return ((mean * noise + extra) * MS).astype(np.int64)


class _Writer:
    def __init__(self, folder: Path, job: Job, rank: int) -> None:
        host = rank * len(job.hosts) // job.ranks
        self._ahead = int(job.clock_offset_ms[host % len(job.clock_offset_ms)] * MS)
        self._job = job
        anchor = 900 * MS + self._ahead
        self._format = RowFormatter(anchor, 0)
        self.path = folder / file_name(rank, job.generation, 0)
        facts = {
            "run_id": job.run_id,
            "generation": job.generation,
            "part": 0,
            "rank": rank,
            "size": job.ranks,
            "host": job.hosts[host],
            "clock_domain": f"clock of {job.hosts[host]}",
            "anchor": {"monotonic_ns": anchor, "wall_ns": WALL_NS},
            "process_start_us": -500_000,
            "batch_size": job.batch_size,
            "framework": "tensorflow",
            "model": "made",
            **job.facts,
        }
        self._lines = [header(facts)]

    def step(
        self, number: int, epoch: int, begin: int, data: int, ready: int, reduced: int, end: int
    ) -> None:
        stamps = [int(t) + self._ahead for t in (data, ready, reduced)]
        row = StepRow(
            self._job.first_step + number,
            epoch,
            int(begin) + self._ahead,
            *(stamps if self._job.stamps else [None, None, None]),
            int(end) + self._ahead,
            1,
            self._job.batch_size,
            0,
        )
        self._lines.append(self._format.step(row))

    def interval(self, kind: str, step: int, epoch: int | None, begin: int, end: int) -> None:
        row = IntervalRow(
            kind, self._job.first_step + step, epoch, begin + self._ahead, end + self._ahead, 0
        )
        self._lines.append(self._format.interval(row))

    def close(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(self._lines))
