"""The logs of a job that continues during a test."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from .step_logs import Job, write_job

_STEPS = 150


class RunningJob:
    """A job of three ranks that have recorded 150 steps so far.

    Args:
        folder: where its logs are.
    """

    def __init__(self, folder: Path, run_id: str = "run-42", **changes: Any) -> None:
        job = Job(ranks=3, steps=_STEPS, run_id=run_id, **changes)
        self.folder = folder
        self._paths = write_job(folder, job)
        self._end_us = 0
        for path in self._paths:
            lines = path.read_text().splitlines(keepends=True)
            (end,) = [line for line in lines if line.startswith("end,")]
            self._end_us = int(end.split(",")[3])
            path.write_text("".join(line for line in lines if line is not end))

    def hang(self, reached: dict[int, str], seconds: float = 6.0, **changes: Any) -> None:
        """Let ranks describe their step in flight.

        Args:
            reached: by rank, the timestamp that it has reached.
            changes: other facts of the step.
        """
        for rank, timestamp in reached.items():
            fact = {
                "step": _STEPS,
                "since_us": self._end_us,
                "seen_us": self._end_us + int(seconds * 1e6),
                "usual_us": 25_000,
                "reached": timestamp,
                "reached_us": self._end_us,
                "stack": [["/home/me/train.py", 12, "batches"]],
                "other_threads": [],
                **changes,
            }
            self._append(rank, f"#facts {json.dumps({'in_flight': fact})}")

    def wait_for_rank_1(self) -> None:
        """Let ranks 0 and 2 wait for rank 1, which waits for its batch."""
        self.hang({0: "ready", 1: "begin", 2: "ready"})

    def go_on(self) -> None:
        for rank in range(len(self._paths)):
            self._append(rank, '#facts {"in_flight": null}')

    def end(self, ranks: Collection[int] = (0, 1, 2)) -> None:
        for rank in ranks:
            self._append(rank, f"end,{_STEPS},,{self._end_us},,,,0,,,0,")

    def _append(self, rank: int, line: str) -> None:
        with self._paths[rank].open("a") as file:
            file.write(f"{line}\n")
