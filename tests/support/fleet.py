"""Ranks that record into one folder and upload to one MLflow run, each in a separate process.

python -m support.fleet FOLDER RUN_ID RANKS SECONDS

They start together on a simulated clock, which jumps from one upload to the next, so that an hour
takes seconds. Each request of a rank has a header with the clock's time. Ranks upload as in training;
they are forked from one process, so that MLflow is imported once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stallscope.collector.mlflow import process
from stallscope.collector.mlflow.client import MlflowRun
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import StepRow
from stallscope.collector.recorder.subprocesses import WATCH

SECOND = "X-Stallscope-Second"
NEVER = 1e9
NS = 10**9
EPOCH = 600


class Clock:
    """The seconds of a rank."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Training:
    """A rank that takes a step every second, and reports it to the uploader."""

    over = False

    def __init__(self, session: Session, clock: Clock, seconds: int) -> None:
        self._session = session
        self._clock = clock
        self._seconds = seconds
        self._step = 0

    def next_message(self, until: float) -> list[str] | None:
        if self._clock.now == 0.0:
            self._clock.now = 1e-3
            return [WATCH, str(self._session.path)]
        self._clock.now = min(until, float(self._seconds))
        for step in range(self._step, int(self._clock.now)):
            begin = step * NS
            stamps = [begin + offset for offset in (10**7, 5 * 10**8, 9 * 10**8)]
            self._session.step(StepRow(step, step // EPOCH, begin, *stamps, begin + NS, 1, 32, 0))
        self._step = int(self._clock.now)
        self._session.flush()
        self.over = self._clock.now >= self._seconds
        if self.over:
            self._session.close()
        return None


def rank_(rank: int, folder: Path, run_id: str, size: int, seconds: int) -> None:
    import requests.adapters

    clock = Clock()
    send = requests.adapters.HTTPAdapter.send

    def stamped(self: Any, request: Any, **options: Any) -> Any:
        request.headers[SECOND] = str(clock.now)
        return send(self, request, **options)

    requests.adapters.HTTPAdapter.send = stamped  # type: ignore[method-assign]
    process.time = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep)  # type: ignore[assignment]
    session = Session(
        Options(folder, flush_seconds=NEVER), World(rank, size, rank % 8), {"batch_size": 32}, 0
    )
    training = Training(session, clock, seconds)
    process.Uploader(run_id, training).run()  # type: ignore[arg-type]


def main() -> None:
    folder, run_id, size, seconds = sys.argv[1:]
    # Import MLflow before forking.
    MlflowRun(run_id).artifacts()
    children = []
    wait, begin = os.pipe()
    for rank in range(int(size)):
        pid = os.fork()
        if pid == 0:
            os.close(begin)
            os.read(wait, 1)
            status = 1
            try:
                rank_(rank, Path(folder), run_id, int(size), int(seconds))
                status = 0
            finally:
                sys.stdout.flush()
                os._exit(status)
        children.append(pid)
    os.close(begin)
    sys.exit(sum(os.waitpid(pid, 0)[1] != 0 for pid in children))


if __name__ == "__main__":
    main()
