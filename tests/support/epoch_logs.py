"""Logs of jobs that have epochs only, each in the format of its program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stallscope.analysis import analyse
from stallscope.analysis.ledger.epoch_ledger import EpochTimes
from stallscope.run import Run

BEGIN = datetime(2019, 11, 6, 0, 0, 0, 250000, tzinfo=UTC)


@dataclass(frozen=True)
class EpochJob:
    """A job with one data set per epoch, divided among its ranks; times in seconds."""

    ranks: int
    epoch_s: float
    epochs: int = 40
    #: From the start of the job to its first epoch, and how much longer that epoch is.
    startup_s: float = 0.0
    tracing_s: float = 0.0
    #: Of all ranks in an epoch, and of one rank in a step.
    samples: int = 6982
    batch: int = 32
    model: str = "VGG16"
    dataset: str = "CALTECH101"

    @property
    def steps(self) -> int:
        """Return the steps of each rank in an epoch."""
        return -(-self.samples // (self.batch * self.ranks))

    @property
    def total_s(self) -> float:
        return self.startup_s + self.tracing_s + self.epochs * self.epoch_s

    @property
    def spans(self) -> Iterator[tuple[float, float]]:
        """Return start and end of every epoch, seconds since the start of the job."""
        begin = self.startup_s
        for epoch in range(self.epochs):
            end = begin + self.epoch_s + (0.0 if epoch else self.tracing_s)
            yield begin, end
            begin = end


def epoch_times_of(run: Run) -> EpochTimes:
    """Analyse a run of epochs, and return their times."""
    times = analyse(run).epoch_times
    assert times is not None
    return times


def write_ehealth(folder: Path, job: EpochJob, repeat: int = 1) -> Path:
    """Write a log of the eHealth benchmarks: rank 0 and the last rank print their epochs."""
    lines = [_stamped(0.0, f"HOROVOD_CLUSTER - REPEAT {repeat}")]
    for epoch, (begin, end) in enumerate(job.spans, 1):
        for rank in sorted({0, job.ranks - 1}):
            label = f"[1,{rank}]<stdout>:"
            lines.append(_stamped(begin, f"{label}Epoch {epoch}/{job.epochs}"))
            lines.append(_stamped(end, f"{label} - {end - begin:.0f}s - loss: 1.0160"))
    # The ranks alternate within an epoch.
    lines.sort(key=lambda line: line[:19])
    facts = (job.samples, 1695, "HOROVOD_CLUSTER", "p2.8xlarge", "p2.8xlarge", 2, job.ranks, repeat)
    named = "|".join(map(str, (*facts, job.epochs, 0.001, job.batch)))
    path = folder / f"benchmark|PROD|{job.dataset}|{job.model}|{named}.log"
    return _write(path, lines)


def write_keras(folder: Path, job: EpochJob) -> Path:
    """Write rank 0's output with ``verbose=2``; the folder's name has the number of ranks."""
    lines = []
    for epoch, (begin, end) in enumerate(job.spans, 1):
        took = end - begin
        each = f"{took * 1e3 / job.steps:.0f}ms/step"
        lines += [f"Epoch {epoch}/{job.epochs}"]
        lines += [f"{job.steps}/{job.steps} - {took:.0f}s - loss: 1.9 - {took:.0f}s/epoch - {each}"]
    return _write(folder / f"np{job.ranks}" / "stdout.txt", lines)


def write_time_history(folder: Path, job: EpochJob) -> Path:
    """Write TimeHistory's log of each epoch's steps, after the flags."""
    lines = [f"Run with flags {{'model': '{job.model}', 'num_gpus': {job.ranks}}}"]
    for epoch, (begin, end) in enumerate(job.spans):
        took = end - begin
        rate = job.samples / took
        steps = f"between steps {epoch * job.steps} and {(epoch + 1) * job.steps}"
        lines.append(f"TimeHistory: {took:.2f} seconds, {rate:.2f} examples/second {steps}")
    return _write(folder / f"np{job.ranks}" / "train.log", lines)


def write_log_callback(folder: Path, job: EpochJob) -> Path:
    """Write the messages of HorovodRunner's LogCallback to the driver, without those of batches."""
    lines = []
    for epoch, (begin, end) in enumerate(job.spans):
        lines.append(f"{_unix(begin):.6f}: begin epoch: {epoch} begin, logs: None")
        lines.append(f"{_unix(end):.6f}: end epoch: {epoch}, logs: {{'loss': 1.9}}")
    return _write(folder / f"np{job.ranks}" / "driver.log", lines)


def write_mlflow(folder: Path, job: EpochJob) -> Path:
    """Write the file that collecting from MLflow writes, with a metric at the end of each epoch."""
    ends = [end for _, end in job.spans]
    ms = [round(_unix(end) * 1e3) for end in ends]
    content = {
        "stallscope_mlflow": 1,
        "run_id": f"{job.ranks:032x}",
        "run_name": f"np{job.ranks}",
        "status": "FINISHED",
        "start_ms": round(_unix(0.0) * 1e3),
        "end_ms": ms[-1],
        "params": {"epochs": str(job.epochs), "model": job.model, "world_size": str(job.ranks)},
        "metrics": {"loss": [[at, epoch, 1.9] for epoch, at in enumerate(ms)]},
        "system_metrics": {},
    }
    return _write(folder / f"run-{job.ranks}" / "metrics.mlflow.json", [json.dumps(content)])


#: By the name of the parser that reads it.
WRITERS: dict[str, Callable[[Path, EpochJob], Path]] = {
    "ehealth": write_ehealth,
    "keras-output": write_keras,
    "time-history": write_time_history,
    "horovod-runner": write_log_callback,
    "mlflow-metrics": write_mlflow,
}


def _stamped(seconds: float, text: str) -> str:
    return f"{BEGIN + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} - STDOUT - INFO - {text}"


def _unix(seconds: float) -> float:
    return BEGIN.timestamp() + seconds


def _write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path
