"""Stores at URLs: the same runs as in a folder, complete at any time, also with concurrent writers."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.door import TIMEOUT_SECONDS, Answer, Request, door
from support.services import Sshd
from support.step_logs import Job, write_job
from support.stores import SECRET, Bucket
from support.waiting import wait_until

from stallscope.cli.dashboard import open_store
from stallscope.cli.main import main
from stallscope.collector.run_names import RunAddress
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.files import Files
from stallscope.collector.store import remote_folder
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.mirror import Mirror, open_mirror
from stallscope.collector.store.remote_folder import LOCK
from stallscope.errors import UnreadableError
from stallscope.opening import open_run, open_runs

JOB = Job(ranks=3, steps=120, epochs=2, slow={(1, "input"): 15.0}, facts={"model": "resnet"})
SYNTHETIC = replace(JOB, slow={}, run_id="synthetic", facts={"model": "resnet", "synthetic": True})
#: Old enough that no collector still works on it.
DAYS = 2 * 24 * 3600


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs" / "run-a"
    write_job(folder, JOB)
    return folder


@pytest.fixture
def synthetic(tmp_path: Path) -> Path:
    folder = tmp_path / "logs" / "synthetic"
    write_job(folder, SYNTHETIC)
    return folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/far/runs"


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://far/runs"
    fsspec.filesystem("memory").rm("/far", recursive=True)


def collect(*sources: object, to: object) -> None:
    assert main(["collect", *map(str, sources), "--to", str(to)]) == 0


def json_of(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """Return a command's JSON output."""
    capsys.readouterr()
    assert main([*map(str, words)]) == 0
    return json.loads(capsys.readouterr().out)


def without(items: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key not in names} for entry in items]


def seen(store: str) -> tuple[Any, str]:
    """Return the file system of a store, as Stallscope opens it, and the store's path there."""
    place = open_source(store)
    assert isinstance(place, Files)
    file_system, root = place.open_file_system()
    file_system.invalidate_cache()
    return file_system, root


def names_in(store: str) -> set[str]:
    """Return all files of a store at a URL."""
    file_system, root = seen(store)
    return {path.removeprefix(root + "/") for path in file_system.find(root)}


def files_of(store: str, run: str = "run-a") -> set[str]:
    return {name.removeprefix(f"{run}/") for name in names_in(store) if name.startswith(f"{run}/")}


def listed_in(store: str, run: str = "run-a") -> set[str]:
    file_system, root = seen(store)
    return set(json.loads(file_system.cat_file(f"{root}/{run}/manifest.json"))["files"])


@pytest.mark.broad
@pytest.mark.parametrize("kind", ["url", "memory"])
def test_runs_are_reported_on_and_listed_as_in_a_folder(
    kind: str,
    logs: Path,
    synthetic: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = request.getfixturevalue(kind)
    # Other processes do not see what this process has in memory.
    alone = ["--jobs", "1"] if kind == "memory" else []
    for place in (store, tmp_path / "store"):
        collect(logs, synthetic, to=place)
    reports = [
        json_of(capsys, "report", place, "--format", "json", *alone)
        for place in (store, tmp_path / "store")
    ]
    assert (reports[0], len(reports[0])) == (reports[1], 2)
    for place in (f"{store}#run-a", f"{store}/run-a"):
        (report,) = json_of(capsys, "report", place, "--format", "json")
        assert report == next(
            candidate for candidate in reports[0] if candidate["run"]["id"] == "run-a"
        )
        assert report["baseline"] is not None
    lists = [json_of(capsys, "runs", place, "--json") for place in (store, tmp_path / "store")]
    assert [entry["path"] for entry in lists[0]] == [f"{store}/{entry['id']}" for entry in lists[0]]
    assert without(lists[0], "path", "collected_at") == without(lists[1], "path", "collected_at")
    assert open_run(f"{store}#run-a").steps.equals(open_run(str(logs)).steps)
    assert len(open_runs(store)) == 2
    assert files_of(store) == {"manifest.json", "summary.json", *listed_in(store)}


@pytest.mark.services
def test_every_kind_of_store_works(
    bucket: Bucket, logs: Path, synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = bucket.url("runs")
    (last,) = logs.glob("rank-00002*")
    bucket.put(logs, "logs/run-a")
    bucket.store.client().rm_file(f"{bucket.name}/logs/run-a/{last.name}")
    collect(bucket.url("logs/run-a"), to=store)
    first = listed_in(store)
    bucket.put(logs, "logs/run-a")
    collect(bucket.url("logs/run-a"), synthetic, to=store)
    collect(logs, synthetic, to=tmp_path / "store")
    remote, local = (
        json_of(capsys, "report", place, "--format", "json")
        for place in (store, tmp_path / "store")
    )
    for report in (*remote, *local):
        report["run"].pop("source")
    assert remote == local
    assert not first & files_of(store)
    capsys.readouterr()
    collect(bucket.url("logs/run-a"), to=store)
    assert capsys.readouterr().out.startswith(f"{store}/run-a: unchanged, 3 of 3 ranks")


def test_later_logs_are_merged_and_old_files_removed(logs: Path, url: str) -> None:
    first, *rest = sorted(logs.glob("*.csv"))
    collect(first, to=url)
    before = listed_in(url)
    for log in rest:
        collect(log, to=url)
    assert open_run(url).ranks == [0, 1, 2]
    assert open_run(url).steps.equals(open_run(str(logs)).steps)
    assert not before & files_of(url)
    assert listed_in(url) | {"manifest.json", "summary.json"} == files_of(url)


def test_several_sources_of_one_command_may_be_one_run(
    logs: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    collect(*sorted(logs.glob("*.csv")), to=url)
    assert open_run(url).ranks == [0, 1, 2]
    assert capsys.readouterr().err == ""
    (entry,) = json_of(capsys, "runs", url, "--json")
    assert entry["ranks"] == 3


def test_existing_files_are_not_written_again(logs: Path, url: str) -> None:
    collect(logs, to=url)
    before = listed_in(url)
    (logs / "rank-00000.0.0.steps.csv").touch()
    collect(logs, to=url)
    assert listed_in(url) == before


def test_unchanged_runs_are_recognised_without_fetching(
    logs: Path,
    url: str,
    memory: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fsspec.filesystem("memory").put(str(logs), "/far/logs", recursive=True)
    source = "memory://far/logs"
    collect(source, to=url)
    fetched: list[str] = []
    monkeypatch.setattr(Files, "_bytes", lambda _place, _system, path, *_: fetched.append(path))
    monkeypatch.setattr(Mirror, "_get", lambda _mirror, _run, name, _file: fetched.append(name))
    capsys.readouterr()
    collect(source, to=url)
    assert capsys.readouterr().out == (
        f"{url}/run-a: unchanged, 3 of 3 ranks, 360 rows, completed\n"
    )
    assert not fetched


@pytest.mark.parametrize("error", [KeyboardInterrupt, UnreadableError])
def test_a_run_without_a_manifest_does_not_exist(
    logs: Path, url: str, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def ended(*_: object) -> bool:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "_put_manifest", ended)
        assert main(["collect", str(logs), "--to", url]) != 0
    assert files_of(url) == set()
    assert main(["runs", url]) == 2
    collect(logs, to=url)
    state = open_run(url)
    write_job(logs, replace(JOB, steps=130))
    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "_put_manifest", ended)
        assert main(["collect", str(logs), "--to", url]) != 0
    assert open_run(url).steps.equals(state.steps)


def test_files_of_killed_collectors_are_removed_a_day_later(
    logs: Path, url: str, tmp_path: Path
) -> None:
    collect(logs, to=url)
    folder = tmp_path / "far" / "runs" / "run-a"
    left = ["steps/logs-000000-000002.0123abcd.parquet", "intervals.0123abcd.parquet"]
    young, foreign = "steps/epochs-000000-000001.4567abcd.parquet", "notes.parquet"
    for name in (*left, young, foreign):
        (folder / name).write_bytes(b"")
        if name != young:
            os.utime(folder / name, (time.time() - DAYS,) * 2)
    write_job(logs, replace(JOB, steps=130))
    collect(logs, to=url)
    assert files_of(url) - listed_in(url) == {"manifest.json", "summary.json", young, foreign}


def between(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, change: Any) -> list[str]:
    """Run a concurrent change once, in the middle of collecting."""
    done: list[str] = []
    method = getattr(kind, name)

    def called(*args: Any) -> Any:
        if not done:
            done.append(name)
            change()
        return method(*args)

    monkeypatch.setattr(kind, name, called)
    return done


def both_are_there(
    logs: Path, store: str, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, *before: Path
) -> None:
    """Let a collector bring a rank while another one starts: the later one brings both."""
    first, second = sorted(logs.glob("*.csv"))[1:]
    for path in before:
        collect(path, to=store)
    done = between(monkeypatch, kind, name, lambda: collect(second, to=store))
    collect(first, to=store)
    assert done == [name]
    assert open_run(store).ranks == ([0, 1, 2] if before else [1, 2])
    assert files_of(store) == {"manifest.json", "summary.json", *listed_in(store)}


def in_background(*sources: object, to: object) -> threading.Thread:
    thread = threading.Thread(target=collect, args=sources, kwargs={"to": to})
    thread.start()
    return thread


def waits_for_the_lock(
    logs: Path, store: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Collect a rank while another collector holds the lock; it waits, and then saves the rank."""
    first, second, *_ = sorted(logs.glob("*.csv"))
    holder = Mirror.create(folder / "holder", store)
    collect(first, to=store)
    with holder.locked("run-a"):
        later = in_background(second, to=store)
        wait_until(lambda: "waiting for the collector of" in caplog.text, "the later collector")
        assert open_run(store).ranks == [0]
    later.join()
    assert open_run(store).ranks == [0, 1]
    assert caplog.text.count("waiting for the collector of") == 1
    assert f"on {platform.node()} (process {os.getpid()}, since " in caplog.text
    assert LOCK not in names_in(store)


def is_taken_over(
    logs: Path, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Collect into a store with the lock of a collector that was killed."""
    killed = (
        "import sys, os, signal; from pathlib import Path; "
        "from stallscope.collector.store.mirror import Mirror; "
        "mirror = Mirror.create(Path(sys.argv[1]), sys.argv[2]); "
        "held = mirror.locked('run-a'); held.__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", killed, str(logs.parent / "killed"), store], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert LOCK in names_in(store)
    monkeypatch.setattr(remote_folder, "_LEASE_SECONDS", 0.2)
    collect(logs, to=store)
    assert "has not renewed its lock for 0.2 s; this collector takes over" in caplog.text
    assert open_run(store).ranks == [0, 1, 2]
    assert LOCK not in names_in(store)


def test_the_later_of_two_collectors_waits(
    logs: Path, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waits_for_the_lock(logs, url, tmp_path, caplog)


@pytest.mark.broad
def test_a_killed_collectors_lock_is_taken_over_after_its_lease(
    logs: Path, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_taken_over(logs, url, monkeypatch, caplog)


@pytest.mark.services
def test_every_kind_of_store_is_locked(
    bucket: Bucket,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits_for_the_lock(logs, bucket.url("runs"), tmp_path, caplog)
    is_taken_over(logs, bucket.url("others"), monkeypatch, caplog)
    assert "no conditional writes" not in caplog.text


def test_a_lock_is_renewed_while_it_is_held(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_folder, "_RENEWED_EVERY_SECONDS", 0.01)
    lock = tmp_path / "far" / "runs" / LOCK
    with Mirror.create(tmp_path / "mirror", url).locked("run-a"):
        before = lock.read_bytes()
        wait_until(lambda: lock.read_bytes() != before, "the renewed lock")
    assert not lock.exists()


def test_an_interrupt_releases_the_lock(
    logs: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        assert LOCK in names_in(url)
        raise KeyboardInterrupt

    monkeypatch.setattr(Mirror, "_put_manifest", interrupted)
    assert main(["collect", str(logs), "--to", url]) == 130
    assert names_in(url) == set()


def test_a_collector_whose_lock_was_taken_over_writes_nothing(
    logs: Path,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lock = tmp_path / "far" / "runs" / LOCK
    new_lock = b'{"stallscope_collector": "another"}'
    between(monkeypatch, Mirror, "_put_manifest", lambda: lock.write_bytes(new_lock))
    assert main(["collect", str(logs), "--to", url]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"stallscope: {url}: another collector has taken over")
    assert names_in(url) == {LOCK}
    assert lock.read_bytes() == new_lock


@pytest.mark.services
@pytest.mark.parametrize(
    ("kind", "again"),
    [("s3", False), ("s3", True), ("az", False), ("az", True)],
)
def test_a_bucket_reports_a_manifest_written_at_the_last_moment(
    kind: str,
    again: bool,
    logs: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket: Bucket = request.getfixturevalue(f"{kind}_bucket")
    before = [logs / "rank-00000.0.0.steps.csv"] if again else []
    place = type(open_source(bucket.url()))
    both_are_there(logs, bucket.url("runs"), monkeypatch, place, "conditional_options", *before)


@pytest.mark.services
def test_stores_on_hosts_over_ssh_work(logs: Path, sshd: Sshd, tmp_path: Path) -> None:
    store = f"ssh://alpha{tmp_path}/runs"
    collect(logs / "rank-00000.0.0.steps.csv", to=store)
    collect(logs, to=store)
    assert open_run(store).steps.equals(open_run(str(logs)).steps)
    files = {path.name for path in (tmp_path / "runs" / "run-a").iterdir()}
    assert files == {
        "manifest.json",
        "summary.json",
        "steps",
        *files & listed_in(f"file://{tmp_path}/runs"),
    }


@pytest.mark.services
def test_a_store_without_conditional_writes_works(
    logs: Path, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(open_source("s3://bucket"))
    monkeypatch.setattr(kind, "conditional_options", lambda *_: {"NobodyKnowsThis": "*"})
    collect(logs, to=s3_bucket.url("runs"))
    assert open_run(s3_bucket.url("runs")).ranks == [0, 1, 2]


@dataclass
class ConditionalWrites:
    """Writes of a file to a store, some of which a proxy answers in place of the server."""

    store: str
    #: The name of the file.
    name: str = "manifest.json"
    #: How the header with the condition starts.
    header: str = "If-"
    #: The answer to a write with a condition; None is silence.
    refusal: Answer | None = None
    #: The number of writes with a condition that are refused.
    refused: int = 100
    #: Whether each write had a condition.
    conditional: list[bool] = field(default_factory=list)


@pytest.fixture
def manifest_writes(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ConditionalWrites]:
    """Run a proxy before the S3 server, which clients find."""
    writes = ConditionalWrites(s3_bucket.url("runs"))

    def is_refused(request: Request) -> bool:
        if request.method != "PUT" or not request.path.endswith(f"/{writes.name}"):
            return False
        writes.conditional.append(any(name.startswith(writes.header) for name in request.headers))
        return writes.conditional[-1] and sum(writes.conditional) <= writes.refused

    with door(s3_bucket.store.service.endpoint) as front:
        front.answers = lambda request: (
            writes.refusal if writes.refusal is not None and is_refused(request) else None
        )
        front.concerns = lambda request: writes.refusal is None and is_refused(request)
        front.stops_after = 0
        s3_bucket.store.use(monkeypatch, AWS_ENDPOINT_URL=front.url, AWS_MAX_ATTEMPTS="1")
        yield writes


def error_of_s3(status: int, code: str) -> Answer:
    return status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


@pytest.mark.services
@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (error_of_s3(403, "AccessDenied"), "access denied"),
        (error_of_s3(400, "InvalidRequest"), "InvalidRequest"),
        (None, f"no data arrived for {TIMEOUT_SECONDS} s"),
    ],
    ids=["denied", "refused", "silent"],
)
def test_a_conditional_write_that_fails_is_not_repeated_without_conditions(
    refusal: Answer | None,
    message: str,
    logs: Path,
    manifest_writes: ConditionalWrites,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Files, "timeout_seconds", TIMEOUT_SECONDS)
    manifest_writes.refusal = refusal
    assert main(["collect", str(logs), "--to", manifest_writes.store]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "cannot be written" in sentence
    assert message in sentence
    assert manifest_writes.conditional == [True]
    assert "run-a/manifest.json" not in names_in(manifest_writes.store)


@pytest.mark.services
def test_a_conflict_of_locks_is_tried_again(logs: Path, manifest_writes: ConditionalWrites) -> None:
    manifest_writes.name = LOCK
    manifest_writes.refusal = error_of_s3(409, "ConditionalRequestConflict")
    manifest_writes.refused = 1
    collect(logs, to=manifest_writes.store)
    assert manifest_writes.conditional[:2] == [True, True]
    assert open_run(manifest_writes.store).ranks == [0, 1, 2]


@pytest.mark.services
def test_a_store_without_conditions_is_written_to_unless_its_manifest_has_changed(
    logs: Path,
    manifest_writes: ConditionalWrites,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest_writes.name = LOCK
    manifest_writes.refusal = error_of_s3(501, "NotImplemented")
    first, second, _ = sorted(logs.glob("*.csv"))
    store = manifest_writes.store
    between(monkeypatch, Mirror, "_put_manifest", lambda: collect(second, to=store))
    assert main(["collect", str(first), "--to", store]) == 2
    assert "another collector has replaced it meanwhile; collect again" in capsys.readouterr().err
    assert open_run(store).ranks == [1]
    # Each collector tries a lock once, and says once that there is none.
    assert manifest_writes.conditional == [True, True]
    says = (
        "this store has no conditional writes, so it cannot be locked: run one collector at a time"
    )
    assert caplog.text.count(says) == 2
    collect(first, to=store)
    assert open_run(store).ranks == [0, 1]
    assert LOCK not in names_in(store)


@pytest.mark.services
def test_a_store_that_only_refuses_existing_files_is_locked(
    logs: Path, manifest_writes: ConditionalWrites, caplog: pytest.LogCaptureFixture
) -> None:
    manifest_writes.name, manifest_writes.header = LOCK, "If-Match"
    manifest_writes.refusal = error_of_s3(501, "NotImplemented")
    for log in sorted(logs.glob("*.csv")):
        collect(log, to=manifest_writes.store)
    assert open_run(manifest_writes.store).ranks == [0, 1, 2]
    assert "no conditional writes" not in caplog.text


def test_concurrent_collectors_leave_a_complete_run(logs: Path, url: str) -> None:
    threads = [
        threading.Thread(target=collect, args=(path,), kwargs={"to": url})
        for path in sorted(logs.glob("*.csv"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run = open_run(url)
    assert run.ranks
    assert run.steps.num_rows == len(run.ranks) * JOB.steps


def test_reading_a_deleted_state_is_an_error(logs: Path, url: str, tmp_path: Path) -> None:
    collect(logs, to=url)
    store = open_mirror(url, tmp_path)
    assert store is not None
    write_job(logs, replace(JOB, steps=130))
    collect(logs, to=url)
    with pytest.raises(UnreadableError) as raised:
        load_run(store / "run-a")
    assert str(raised.value) == (
        f"{url}/run-a: this run was collected again meanwhile; run the command again"
    )


def _other_bytes(folder: Path) -> None:
    (file,) = folder.glob("intervals.*.parquet")
    file.write_bytes(file.read_bytes()[::-1])


def _missing(folder: Path) -> None:
    (file,) = folder.glob("steps/*.parquet")
    file.unlink()


def _outside(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"intervals.', '"intervals/../../../../../x.'))


def _no_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"{")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_other_bytes, "the checksum differs"),
        (_missing, ".parquet: missing"),
        (_outside, "the manifest names a file outside of the run"),
        (_no_manifest, "the collected run is damaged"),
    ],
)
def test_damage_is_an_error_that_collecting_again_repairs(
    logs: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any, says: str
) -> None:
    collect(logs, to=url)
    damage(tmp_path / "far" / "runs" / "run-a")
    capsys.readouterr()
    assert main(["report", f"{url}/run-a"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"stallscope: {url}")
    assert says in sentence
    write_job(logs, replace(JOB, steps=130))
    collect(logs, to=url)
    assert open_run(url).steps.num_rows == 390


def test_ids_of_runs_never_become_paths(tmp_path: Path, url: str) -> None:
    write_job(tmp_path / "logs", replace(JOB, run_id="../../evil"))
    collect(tmp_path / "logs", to=url)
    (name,) = {path.name for path in (tmp_path / "far" / "runs").iterdir() if path.name[0] != "."}
    assert "/" not in name
    assert {path.name for path in (tmp_path / "far").iterdir()} == {"runs"}
    assert open_run(f"{url}#../../evil").ranks == [0, 1, 2]


def test_a_store_is_followed_until_the_run_ends(logs: Path, url: str) -> None:
    log = logs / "rank-00001.0.0.steps.csv"
    whole = log.read_bytes()
    log.write_bytes(whole[: whole.rindex(b"\nend") + 1])
    words = ["collect", str(logs), "--to", url, "--follow", "--every", "0.1"]
    ended: list[int] = []
    following = threading.Thread(target=lambda: ended.append(main(words)))
    following.start()
    wait_until(lambda: names_in(url), "the run in the store")
    log.write_bytes(whole)
    following.join()
    assert ended == [0]
    assert open_run(url).status == "completed"


def test_runs_are_removed(
    logs: Path, synthetic: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    collect(logs, synthetic, to=url)
    capsys.readouterr()
    assert main(["rm", f"{url}#run-a", "--yes"]) == 0
    assert capsys.readouterr().out == f"{url}/run-a: removed\n"
    assert files_of(url) == set()
    assert [entry["id"] for entry in json_of(capsys, "runs", url, "--json")] == ["synthetic"]
    for words, says in (
        ((f"{url}#run-a",), f'{url}: no such run: "run-a"; there is synthetic'),
        ((url,), f"{url}: this is a whole store; name a run: {url}#RUN_ID"),
        ((f"{url}-b#run-a",), f"{url}-b#run-a: there are no collected runs"),
    ):
        assert main(["rm", "--yes", *words]) == 2
        assert capsys.readouterr().err == f"stallscope: {says}\n"


@pytest.mark.broad
def test_the_dashboard_shows_a_mirror(
    logs: Path, synthetic: Path, url: str, tmp_path: Path
) -> None:
    collect(logs, synthetic, to=url)
    store = open_mirror(url, tmp_path)
    runs, failures = open_store([RunAddress(str(store))])
    assert not failures
    assert {run.id for run in runs.runs()} == {"run-a", "synthetic"}
    assert runs.analysis("run-a", "synthetic").steps == open_run(f"{url}#run-a").rows // 3


def test_invalid_urls_are_errors_of_one_sentence(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, says in (
        (["verify", url], f"{url}: copy the store, or the run, into a folder to check it"),
        (["runs", url], f"{url}: no runs were collected to this URL"),
    ):
        assert main(words) == 2
        assert capsys.readouterr().err == f"stallscope: {says}\n"


@pytest.mark.services
def test_refusals_are_errors_of_one_sentence_without_secrets(
    logs: Path,
    s3_bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    collect(logs, to=s3_bucket.url("runs"))
    s3_bucket.store.use(monkeypatch, AWS_SECRET_ACCESS_KEY=SECRET)
    capsys.readouterr()
    url = s3_bucket.url("runs")
    for words in (["collect", str(logs), "--to", url], ["runs", url], ["report", url], ["rm", url]):
        assert main(words) == 2
        (sentence,) = capsys.readouterr().err.splitlines()
        assert sentence.startswith(f"stallscope: {url}")
        assert "access denied" in sentence
        assert SECRET not in sentence
    s3_bucket.store.use(monkeypatch)
    assert main(["collect", str(logs), "--to", "s3://somebody-elses/runs"]) == 2
    assert "access denied" in capsys.readouterr().err


@pytest.mark.services
def test_a_read_only_bucket_is_an_error(
    logs: Path, s3_bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = f"arn:aws:s3:::{s3_bucket.name}/*"
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": resource}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [denied]})
    s3_bucket.store.client().call_s3("put_bucket_policy", Bucket=s3_bucket.name, Policy=policy)
    url = s3_bucket.url("runs")
    assert main(["collect", str(logs), "--to", url]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"stallscope: {url}/run-a: cannot be written: access denied")
