"""Logs in object stores are read like local ones, and every error is one sentence."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from support.places import refusal, sentences
from support.services import started
from support.step_logs import Job, write_job
from support.stores import SECRET, Bucket, put_job

from stallscope.catalogue.collecting import collect
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.files import Files
from stallscope.collector.sources.source import Source, SourceFile
from stallscope.collector.store.manifests import collected_runs
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.opening import open_run

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=40, epochs=2)

#: Stores differ in their clients, and not in what is made of the files' names.
in_s3 = pytest.mark.parametrize(
    "bucket",
    ["s3", *(pytest.param(scheme, marks=pytest.mark.variant) for scheme in ("gs", "az"))],
    indirect=True,
)


@pytest.fixture
def logs(tmp_path: Path, bucket: Bucket) -> Path:
    """Make a local folder with a run, and the same below ``logs/run-a`` of the bucket."""
    return put_job(tmp_path, JOB, bucket)


def names(source: Source) -> list[str]:
    return [file.name for file in source.files()]


def only(url: str) -> SourceFile:
    (file,) = open_source(url).files()
    return file


def message_of_the_command(words: list[str]) -> str:
    """Return the message of a failing command, from a process without the tests' handlers."""
    command = [sys.executable, "-m", "stallscope", *words]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 2
    assert process.stdout == ""
    (message,) = sentences(process.stderr)
    return message


def test_a_run_in_a_bucket_equals_the_local_one(logs: Path, bucket: Bucket) -> None:
    remote, local = open_run(bucket.url("logs/run-a")), open_run(str(logs))
    assert remote.steps.equals(local.steps)
    assert remote.intervals.equals(local.intervals)
    assert remote.logs == local.logs
    assert remote.problems == local.problems
    assert remote.source == bucket.url("logs/run-a")


@in_s3
def test_files_have_names_sizes_and_versions(logs: Path, bucket: Bucket) -> None:
    files = open_source(bucket.url("logs")).files()
    local = sorted(logs.iterdir())
    assert [file.name for file in files] == [f"run-a/{path.name}" for path in local]
    assert [file.size for file in files] == [path.stat().st_size for path in local]
    assert [file.where for file in files] == [bucket.url(f"logs/{file.name}") for file in files]
    assert len({file.version for file in files} - {""}) == len(local)


def test_whole_files_and_parts_are_read(logs: Path, bucket: Bucket) -> None:
    file = only(bucket.url("logs/run-a/rank-00001.*"))
    data = (logs / file.name).read_bytes()
    assert file.read() == data
    assert file.read(100) == data[100:]
    assert file.read(100, 164) == data[100:164]
    assert file.read(0, 64) == data[:64]
    assert file.read(100, len(data) + 100) == data[100:]


def test_a_rewritten_file_has_another_version(logs: Path, bucket: Bucket) -> None:
    url = bucket.url("logs/run-a/rank-00000*")
    before = only(url)
    assert only(url).version == before.version
    path = logs / before.name
    path.write_bytes(path.read_bytes() + b"more\n")
    bucket.put(logs, "logs/run-a")
    assert only(url).version != before.version
    assert only(url).size == before.size + 5


def test_collecting_again_fetches_only_new_bytes(
    logs: Path, bucket: Bucket, tmp_path: Path
) -> None:
    def collected() -> tuple[int, bool]:
        """Return how many bytes were fetched, and whether nothing was new."""
        sizes: list[int] = []
        again = collect(
            [open_source(bucket.url("logs/run-a"))],
            tmp_path / "store",
            progress=lambda new, _total: sizes.append(new),
        )
        return sum(sizes), again.unchanged

    log = sorted(logs.glob("*.csv"))[1]
    whole = log.read_bytes()
    half = whole.index(b"\n", len(whole) // 2) + 1
    log.write_bytes(whole[:half])
    bucket.put(logs, "logs/run-a")
    everything = sum(path.stat().st_size for path in logs.iterdir())
    assert collected() == (everything, False)
    assert collected() == (0, True)
    bucket.store.client().pipe_file(f"{bucket.name}/logs/run-a/{log.name}", whole)
    assert collected() == (len(whole) - half, False)
    log.write_bytes(whole)
    assert open_run(str(tmp_path / "store")).steps.equals(open_run(str(logs)).steps)


@in_s3
def test_patterns_name_files_and_folders(logs: Path, bucket: Bucket) -> None:
    bucket.put(logs, "logs/run-b")
    everything = [f"run-{run}/{path.name}" for run in "ab" for path in sorted(logs.iterdir())]
    assert names(open_source(bucket.url("logs/*"))) == everything
    assert names(open_source(bucket.url("logs/run-[b]"))) == everything[len(everything) // 2 :]
    assert names(open_source(bucket.url("logs/*/rank-0000?.0.0.steps.csv"))) == [
        name for name in everything if "rank" in name
    ]
    assert refusal(bucket.url("logs/c*")) == f"{bucket.url('logs/c*')}: nothing matches"


@in_s3
def test_a_whole_bucket_is_a_place(logs: Path, bucket: Bucket) -> None:
    assert names(open_source(bucket.url().rstrip("/"))) == [
        f"logs/run-a/{path.name}" for path in sorted(logs.iterdir())
    ]


@in_s3
@pytest.mark.parametrize("place", ["nothing", "logs/run", "logs/run-a/rank-00009.0.0.steps.csv"])
def test_a_missing_folder_is_named(logs: Path, bucket: Bucket, place: str) -> None:
    url = bucket.url(place)
    assert refusal(url) == f"{url}: no such file or folder"


@in_s3
@pytest.mark.parametrize("path", ["", "/logs", "/logs/*.csv"])
def test_a_missing_bucket_is_named(bucket: Bucket, path: str) -> None:
    with pytest.raises(NotFoundError, match=r"no such file or folder|nothing matches"):
        open_source(f"{bucket.store.scheme}://stallscope-nothing{path}").files()


@in_s3
def test_a_missing_bucket_ends_the_command(bucket: Bucket) -> None:
    url = f"{bucket.store.scheme}://stallscope-nothing/logs"
    message = message_of_the_command(["report", url])
    assert message == f"stallscope: {url}: no such file or folder"


@in_s3
def test_a_file_deleted_since_is_named(logs: Path, bucket: Bucket) -> None:
    file, *_ = open_source(bucket.url("logs/run-a")).files()
    bucket.store.client().rm(f"{bucket.name}/logs/run-a/{file.name}")
    with pytest.raises(NotFoundError, match=f"{file.where}: the file was removed"):
        file.read()


@pytest.mark.parametrize("path", ["", "/logs/run-a", "/logs/run-*"])
def test_wrong_credentials_are_an_error_that_does_not_show_them(
    logs: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    monkeypatch.setattr(Files, "attempts", 1)
    bucket.store.use(monkeypatch, **bucket.store.wrong(tmp_path))
    sentence = refusal(f"{bucket.url().rstrip('/')}{path}")
    assert ": cannot be opened: access denied (" in sentence
    assert "it comes from " in sentence or "they come from " in sentence
    assert bucket.store.secret not in sentence


def test_wrong_credentials_end_the_command(
    logs: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bucket.store.use(monkeypatch, **bucket.store.wrong(tmp_path))
    words = ["collect", bucket.url("logs/run-a"), "--to", str(tmp_path / "store")]
    message = message_of_the_command(words)
    assert f"stallscope: {bucket.url('logs/run-a')}: cannot be opened: access denied" in message
    assert SECRET not in message
    assert collected_runs(tmp_path / "store") == []


def test_credentials_are_not_in_collected_files(logs: Path, bucket: Bucket, tmp_path: Path) -> None:
    collect([open_source(bucket.url("logs/run-a"))], tmp_path / "store")
    kept = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if bucket.store.secret.encode() in path.read_bytes()]


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_stopped_server_is_an_error_of_one_sentence(
    scheme: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request.getfixturevalue("azurite_side" if scheme == "az" else "services_side")
    # More attempts would only make the test slower.
    monkeypatch.setattr(Files, "attempts", 1)
    write_job(tmp_path / "logs", JOB)
    with started(scheme, tmp_path / "server") as store:
        store.use(monkeypatch, AWS_MAX_ATTEMPTS="1")
        bucket = store.new_bucket()
        bucket.put(tmp_path / "logs", "logs")
        place = open_source(bucket.url("logs"))
        file, *_ = place.files()
    assert "cannot be opened: " in refusal(bucket.url("logs"))
    assert "cannot be opened: " in refusal(bucket.url().rstrip("/"))
    with pytest.raises(UnreadableError, match="cannot be read: "):
        file.read()


@in_s3
def test_files_can_be_sent_to_other_machines(logs: Path, bucket: Bucket) -> None:
    place = open_source(bucket.url("logs/run-a"))
    assert place.portable
    sent = pickle.loads(pickle.dumps(place.files()))
    assert [file.read() for file in sent] == [path.read_bytes() for path in sorted(logs.iterdir())]
