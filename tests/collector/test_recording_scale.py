"""64 ranks: their load on a folder and an MLflow server, and that of collecting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from support import fleet
from support.door import Door, Request, door
from support.stores import Bucket, Store

from stallscope.catalogue.collecting import collect
from stallscope.collector.recorder.step_log.log_files import (
    FIRST_UPLOAD_REQUESTS,
    FIRST_UPLOAD_SECONDS,
    REQUESTS_PER_SECOND,
    next_pause_seconds,
    turn_seconds,
)
from stallscope.collector.source_kinds import open_source
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = pytest.mark.services

RANKS = 64
SECONDS = 300
#: Requests that list a bucket with up to 1,000 files, and one that asks whether the server answers.
LISTING = 5


@dataclass(frozen=True)
class Job:
    """Ranks that have trained: their logs, and all requests to a server meanwhile."""

    folder: Path
    run_id: str
    server: Door
    asked: tuple[Request, ...]

    @property
    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.steps.csv"))

    @property
    def sent(self) -> list[int]:
        return [len(request.body) for request in self.asked if request.method == "PUT"]


@pytest.fixture(scope="module")
def job(mlflow_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("scale")
    with door(mlflow_server) as front, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", front.url)
        patch.setenv("PYTHONPATH", str(Path(fleet.__file__).parents[1]))
        run_id = str(MlflowClient(mlflow_server).create_run("0").info.run_id)
        words = ["-m", "support.fleet", str(folder / "logs"), run_id, str(RANKS), str(SECONDS)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        asked = tuple(request for request in front.asked if fleet.SECOND in request.headers)
        yield Job(folder / "logs", run_id, front, asked)


@pytest.fixture
def store_front(s3_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bucket, Door]]:
    """Return an empty bucket, and the proxy before its store."""
    with door(s3_store.service.endpoint) as front:
        s3_store.use(monkeypatch, AWS_ENDPOINT_URL=front.url)
        yield s3_store.new_bucket(), front
    s3_store.forget()


def uploads() -> int:
    """Return how many times a rank uploads while it trains."""
    pause = now = FIRST_UPLOAD_SECONDS
    count = 0
    while now < SECONDS:
        count += 1
        pause = next_pause_seconds(pause, now, RANKS)
        now += pause
    return count


def in_any_second(times: list[float]) -> int:
    """Return the most requests within one second."""
    times = sorted(times)
    return max(sum(begin <= time < begin + 1 for time in times) for begin in times)


def same(first: Run, second: Run) -> bool:
    return (
        first.steps.equals(second.steps)
        and first.intervals.equals(second.intervals)
        and first.logs == second.logs
        and first.problems == second.problems
    )


def test_a_folder_gets_one_file_per_rank(job: Job) -> None:
    assert {path.name for path in job.folder.iterdir()} == {
        "run.json",
        *(f"rank-{rank:05d}.0.0.steps.csv" for rank in range(RANKS)),
    }


def test_requests_to_the_server_are_within_the_rate_limit(job: Job) -> None:
    # The first upload, the later ones, and the rest at the end.
    per_rank = FIRST_UPLOAD_REQUESTS + uploads()
    assert RANKS * (per_rank - 1) <= len(job.asked) <= RANKS * per_rank
    times = [float(request.headers[fleet.SECOND]) for request in job.asked]
    # A rank's first three come together.
    assert in_any_second(times) <= REQUESTS_PER_SECOND + 4 * FIRST_UPLOAD_REQUESTS
    assert in_any_second([time for time in times if time >= SECONDS]) <= REQUESTS_PER_SECOND + 4


def test_no_byte_is_sent_twice(job: Job) -> None:
    assert sum(job.sent) == sum(log.stat().st_size for log in job.logs)
    assert len(job.sent) <= RANKS * (uploads() + 1)


def test_uploaded_and_collected_logs_are_those_written(job: Job, tmp_path: Path) -> None:
    (written,) = read(str(job.folder))
    assert (written.size, written.steps.num_rows) == (RANKS, RANKS * SECONDS)
    # Whether the server answers, the run, the place of its artifacts, the folder of all logs, and each
    # log's own.
    lists = 4 + RANKS
    for state, most in (("new", lists + len(job.sent)), ("unchanged", lists)):
        job.server.asked.clear()
        collected = collect([open_source(f"mlflow:{job.run_id}")], tmp_path)
        assert same(collected.runs[0][0], written)
        assert collected.unchanged == (state == "unchanged")
        assert len(job.server.asked) <= most


def test_a_bucket_is_listed_at_once_and_only_grown_logs_are_requested(
    job: Job, store_front: tuple[Bucket, Door], tmp_path: Path
) -> None:
    bucket, front = store_front
    half = tmp_path / "half"
    half.mkdir()
    for log in job.logs:
        (half / log.name).write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    # The end of a grown log is compared, and new bytes are fetched.
    for state, requests in ((half, 1), (job.folder, 2), (None, 0)):
        if state is not None:
            bucket.put(state, "run")
        front.asked.clear()
        collected = collect([open_source(bucket.url("run"))], tmp_path / "store")
        assert len(front.asked) <= LISTING + requests * (RANKS + 1)
    (written,) = read(str(job.folder))
    assert same(collected.runs[0][0], written)


def test_ranks_upload_in_the_order_of_their_numbers() -> None:
    turns = [turn_seconds(rank, RANKS) for rank in range(RANKS)]
    assert len(set(turns)) == RANKS
    gaps = [later - earlier for earlier, later in pairwise(sorted(turns))]
    assert max(gaps) < 3 / REQUESTS_PER_SECOND
