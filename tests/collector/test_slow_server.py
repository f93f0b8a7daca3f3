"""Wait for a slow store, give up on a silent one, and lose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.door import TIMEOUT_SECONDS, Door, Request, door
from support.step_logs import Job, write_job
from support.stores import Bucket
from tenacity import stop_after_attempt

from stallscope.catalogue.collecting import collect
from stallscope.cli.main import main
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.files import Files
from stallscope.collector.store import fetch as fetching
from stallscope.collector.store.manifests import collected_runs
from stallscope.errors import UnreadableError
from stallscope.opening import open_run

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=40)
# The last of the three: the others are fetched meanwhile.
SLOW = "rank-00002.0.0.steps.csv"


SILENCE = f"no data arrived for {TIMEOUT_SECONDS} s"


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no client give up on a server because the machine is busy."""
    monkeypatch.setattr(Files, "timeout_seconds", TIMEOUT_SECONDS)
    # The proxy's clock passes for all requests, so no other one is under way.
    monkeypatch.setattr(fetching, "_AT_ONCE", 1)


@pytest.fixture
def slow(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """Run a proxy before the S3 server, which clients find."""
    with door(s3_bucket.store.service.endpoint) as front:
        front.concerns = lambda request: request.method == "GET" and SLOW in request.path
        # The fetching code retries, without pauses.
        monkeypatch.setattr(fetching._read.retry, "sleep", lambda seconds: None)
        monkeypatch.setattr(fetching._read.retry, "stop", stop_after_attempt(2))
        s3_bucket.store.use(monkeypatch, AWS_ENDPOINT_URL=front.url, AWS_MAX_ATTEMPTS="1")
        yield front


@pytest.fixture
def logs(tmp_path: Path, s3_bucket: Bucket) -> Path:
    write_job(tmp_path / "logs", JOB)
    s3_bucket.put(tmp_path / "logs", "logs")
    return tmp_path / "logs"


def fetched(front: Door, bucket: Bucket) -> list[str]:
    """Return the names of files requested since the last call."""

    def is_file(request: Request) -> bool:
        return request.method == "GET" and request.path.startswith(f"/{bucket.name}/logs/")

    names = [request.path.rpartition("/")[2] for request in front.asked if is_file(request)]
    front.asked.clear()
    return sorted(names)


def test_collecting_waits_for_a_slow_store(
    logs: Path, slow: Door, s3_bucket: Bucket, tmp_path: Path
) -> None:
    # Longer than the timeout in total, and much shorter from piece to piece.
    slow.pieces, slow.pause = 20, TIMEOUT_SECONDS / 4
    collect([open_source(s3_bucket.url("logs"))], tmp_path / "store")
    assert open_run(str(tmp_path / "store")).steps.equals(open_run(str(logs)).steps)
    assert fetched(slow, s3_bucket).count(SLOW) == 1


@pytest.mark.parametrize("pieces", [0, 1], ids=["before it answers", "within a file"])
def test_collecting_gives_up_on_a_store_that_stops_answering(
    logs: Path,
    slow: Door,
    s3_bucket: Bucket,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pieces: int,
) -> None:
    slow.pieces, slow.stops_after = 2, pieces
    store = tmp_path / "store"
    words = ["collect", s3_bucket.url("logs"), "--to", str(store)]
    assert main(words) == 2
    where = s3_bucket.url(f"logs/{SLOW}")
    assert capsys.readouterr().err.endswith(f"stallscope: {where}: cannot be read: {SILENCE}\n")
    assert collected_runs(store) == []
    assert fetched(slow, s3_bucket).count(SLOW) == 2
    slow.stops_after = None
    assert main(words) == 0
    # Files that were fetched whole are not requested again.
    assert fetched(slow, s3_bucket) == [SLOW]
    assert open_run(str(store)).steps.equals(open_run(str(logs)).steps)


def test_collecting_gives_up_on_a_store_that_never_answers(
    logs: Path, slow: Door, s3_bucket: Bucket
) -> None:
    slow.concerns = lambda request: True
    slow.stops_after = 0
    with pytest.raises(UnreadableError, match=f"cannot be opened: {SILENCE}"):
        open_source(s3_bucket.url("logs")).files()


def test_a_log_that_grew_keeps_its_old_copy_while_the_store_is_silent(
    logs: Path, slow: Door, s3_bucket: Bucket, tmp_path: Path
) -> None:
    store, place = tmp_path / "store", open_source(s3_bucket.url("logs"))
    log = logs / SLOW
    whole = log.read_bytes()
    half = whole.index(b"\n", len(whole) // 2) + 1
    log.write_bytes(whole[:half])
    s3_bucket.put(logs, "logs")
    collect([place], store)
    before = open_run(str(store)).steps
    log.write_bytes(whole)
    s3_bucket.put(logs, "logs")
    slow.pieces, slow.stops_after = 2, 1
    with pytest.raises(UnreadableError, match=SILENCE):
        collect([place], store)
    assert open_run(str(store)).steps.equals(before)
    slow.stops_after = None
    collect([place], store)
    assert open_run(str(store)).steps.equals(open_run(str(logs)).steps)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_file_that_is_denied_does_not_keep_others_from_being_collected(
    scheme: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bucket: Bucket = request.getfixturevalue(f"{scheme}_bucket")
    write_job(tmp_path / "logs", JOB)
    bucket.put(tmp_path / "logs", "logs")
    with door(bucket.store.service.endpoint) as front:
        use_door(bucket, front, monkeypatch)
        front.answers = lambda request: (
            (403, b"") if request.method == "GET" and SLOW in request.path else None
        )
        store = tmp_path / "store"
        words = ["collect", bucket.url("logs"), "--to", str(store)]
        assert main(words) == 0
        (warning,) = capsys.readouterr().err.splitlines()
        assert warning.startswith(f"  {SLOW}: cannot be read: access denied (")
        assert open_run(str(store)).ranks == [0, 1]
        assert sum(SLOW in asked.path for asked in front.asked) <= 2
        front.answers = lambda request: None
        assert main(words) == 0
        assert open_run(str(store)).steps.equals(open_run(str(tmp_path / "logs")).steps)


def use_door(bucket: Bucket, front: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clients of a bucket's store find the proxy in place of the server."""
    service = bucket.store.service
    settings = {
        name: value.replace(service.endpoint, front.url)
        for name, value in service.settings().items()
    }
    bucket.store.use(monkeypatch, **settings)


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_collecting_gives_up_on_other_silent_stores_too(
    scheme: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Files, "attempts", 1)
    bucket: Bucket = request.getfixturevalue(f"{scheme}_bucket")
    write_job(tmp_path / "logs", JOB)
    bucket.put(tmp_path / "logs", "logs")
    with door(bucket.store.service.endpoint) as front:
        use_door(bucket, front, monkeypatch)
        files = {file.name: file for file in open_source(bucket.url("logs")).files()}
        front.concerns = lambda request: request.method == "GET"
        for pieces in (0, 1):
            front.pieces, front.stops_after = 2, pieces
            with pytest.raises(UnreadableError, match=f"cannot be read: {SILENCE}"):
                files[SLOW].read()
        front.stops_after = 0
        with pytest.raises(UnreadableError, match=f"cannot be opened: {SILENCE}"):
            open_source(bucket.url("logs")).files()
        front.stops_after = None
        assert files[SLOW].read() == (tmp_path / "logs" / SLOW).read_bytes()
