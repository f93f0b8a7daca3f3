"""Collecting fetches only new bytes, never shows partial runs, and loses nothing."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

from stallscope.catalogue.collecting import Collected, collect
from stallscope.cli.engine_option import collecting_engine
from stallscope.cli.main import main
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.files import Files
from stallscope.collector.sources.source import Source, SourceFile
from stallscope.collector.store import fetch as fetching
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.manifests import collected_runs
from stallscope.errors import MissingExtraError, UnreadableError, UnwritableError
from stallscope.opening import open_run
from stallscope.parsers import read

JOB = Job(ranks=3, steps=40)


class Far(Source):
    """A local folder that is read like a remote one. Requests are counted.

    Real servers are tested elsewhere; these tests check the requests, and failures that no real
    server has on demand.
    """

    def __init__(self, folder: Path) -> None:
        self.where = f"far://{folder.name}"
        self._folder = folder
        self.asked: list[tuple[str, int, int | None]] = []
        self.before: Callable[[str], None] = lambda name: None

    @property
    def bytes_read(self) -> int:
        return sum((end or 0) - start for _, start, end in self.asked)

    def files(self) -> list[SourceFile]:
        return [self._file(path) for path in sorted(self._folder.rglob("*")) if path.is_file()]

    def _file(self, path: Path) -> SourceFile:
        name = path.relative_to(self._folder).as_posix()

        def reads(start: int, end: int | None) -> bytes:
            self.before(name)
            self.asked.append((name, start, end))
            return path.read_bytes()[start:end]

        state = path.stat()
        return SourceFile(name, f"far://{name}", state.st_size, str(state.st_mtime_ns), reads)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write_job(tmp_path / "logs", JOB)
    return tmp_path / "logs"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching._read.retry, "sleep", lambda seconds: None)


def grow(path: Path, job: Job) -> None:
    """Let a log grow as with a recorder: lines are only appended."""
    whole = path.parent / "whole"
    write_job(whole, job)
    path.write_bytes((whole / path.name).read_bytes())
    for file in whole.iterdir():
        file.unlink()
    whole.rmdir()


def test_collected_runs_equal_the_logs(logs: Path, store: Path) -> None:
    source = Far(logs)
    ((run, folder),) = collect([source], store).runs
    original = read(str(logs))[0]
    assert run.steps.equals(original.steps)
    assert load_run(folder).ranks == [0, 1, 2]
    assert source.bytes_read == sum(path.stat().st_size for path in logs.iterdir())


def test_collecting_twice_fetches_nothing(logs: Path, store: Path) -> None:
    collect([Far(logs)], store)
    again = Far(logs)
    collected = collect([again], store)
    assert (collected.unchanged, again.asked) == (True, [])
    assert collected.runs[0][0].steps.num_rows == 120


def test_only_the_new_end_of_a_grown_log_is_fetched(logs: Path, store: Path) -> None:
    log = sorted(logs.iterdir())[1]
    whole = log.read_bytes()
    half = whole.index(b"\n", len(whole) // 2) + 1
    log.write_bytes(whole[:half])
    collect([Far(logs)], store)
    log.write_bytes(whole)
    again = Far(logs)
    ((run, _),) = collect([again], store).runs
    assert run.steps.equals(read(str(logs))[0].steps)
    assert {name for name, _, _ in again.asked} == {log.name}
    # A check of the copy's end, and the bytes after it.
    assert again.asked[-1] == (log.name, half, len(whole))


def test_a_rewritten_log_is_fetched_again(logs: Path, store: Path) -> None:
    collect([Far(logs)], store)
    log = sorted(logs.iterdir())[0]
    write_job(logs, replace(JOB, steps=80, seed=9))
    source = Far(logs)
    ((run, _),) = collect([source], store).runs
    assert (log.name, 0, log.stat().st_size) in source.asked
    assert run.steps.num_rows == 240


def test_a_broken_transfer_shows_no_partial_run_and_resumes(logs: Path, store: Path) -> None:
    names = sorted(path.name for path in logs.iterdir())
    broken = Far(logs)

    def gone(name: str) -> None:
        if name == names[-1]:
            raise ConnectionError("the server has gone")

    broken.before = gone
    with pytest.raises(UnreadableError, match="the server has gone"):
        collect([broken], store)
    assert collected_runs(store) == []
    again = Far(logs)
    collect([again], store)
    assert {name for name, _, _ in again.asked} == {names[-1]}
    (folder,) = collected_runs(store)
    assert load_run(folder).ranks == [0, 1, 2]


def test_temporary_errors_are_retried_and_wrong_credentials_are_not(
    logs: Path, store: Path
) -> None:
    failures = iter([ConnectionError("busy"), TimeoutError("slow")])
    source = Far(logs)

    def now_and_then(name: str) -> None:
        error = next(failures, None)
        if error:
            raise error

    source.before = now_and_then
    assert len(collect([source], store).runs) == 1

    tries = []

    def refused(name: str) -> None:
        tries.append(name)
        raise PermissionError("access denied")

    (logs / "rank-00000.0.1.steps.csv").write_text("more")
    refusing = Far(logs)
    refusing.before = refused
    # The other files are here already: only this one is left out.
    ((run, _),) = collect([refusing], store).runs
    assert any("access denied" in problem.what for problem in run.problems)
    assert len(tries) == 1
    with pytest.raises(UnreadableError, match="access denied"):
        collect([refusing], store.with_name("new"))
    assert len(tries) == 1 + len(list(logs.iterdir()))


def test_a_file_that_shrinks_while_it_is_read_is_an_error(logs: Path, store: Path) -> None:
    source = Far(logs)
    files = source.files()
    longer = [replace(files[0], size=files[0].size + 100), *files[1:]]
    source.files = lambda: longer  # type: ignore[method-assign]
    with pytest.raises(UnreadableError, match="became shorter while it was read; collect it again"):
        collect([source], store)


def test_an_interrupted_append_is_not_part_of_the_copy(logs: Path, store: Path) -> None:
    source = Far(logs)
    collect([source], store)
    for copy in (fetching.copies_folder(source, store) / "files").iterdir():
        with copy.open("ab") as file:
            file.write(b"half a line that came before the machine went down")
    log = sorted(logs.iterdir())[0]
    grow(log, replace(JOB, steps=60))
    ((run, _),) = collect([Far(logs)], store).runs
    assert run.steps.equals(read(str(logs))[0].steps)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "\0", "x" * 300])
def test_names_never_become_paths(logs: Path, store: Path, tmp_path: Path, name: str) -> None:
    source = Far(logs)
    files = source.files()
    source.files = lambda: [replace(files[0], name=name), *files[1:]]  # type: ignore[method-assign]
    before = {path for path in tmp_path.rglob("*") if store not in path.parents}
    ((run, _),) = collect([source], store).runs
    assert run.ranks == [0, 1, 2]
    after = {path for path in tmp_path.rglob("*") if store not in path.parents}
    assert after - before == {store}


def test_logs_deleted_at_the_source_stay_collected(logs: Path, store: Path) -> None:
    collect([Far(logs)], store)
    sorted(logs.iterdir())[2].unlink()
    ((run, _),) = collect([Far(logs)], store).runs
    assert run.ranks == [0, 1, 2]


def test_hosts_that_share_no_disk_are_one_run(tmp_path: Path, store: Path) -> None:
    paths = write_job(tmp_path / "a", JOB)
    (tmp_path / "b").mkdir()
    paths[2].rename(tmp_path / "b" / paths[2].name)
    ((run, _),) = collect([Far(tmp_path / "a"), Far(tmp_path / "b")], store).runs
    assert run.ranks == [0, 1, 2]
    assert run.source == "far://a and 1 more"


def test_two_collectors_at_once_leave_one_whole_run(logs: Path, store: Path) -> None:
    results: list[Collected] = []
    threads = [
        threading.Thread(target=lambda: results.append(collect([Far(logs)], store)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    (folder,) = collected_runs(store)
    assert load_run(folder).steps.equals(read(str(logs))[0].steps)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k tmpfs {place} 2>/dev/null"):
        pytest.skip("mounting a small file system needs root")
    yield place
    os.system(f"umount {place}")


def test_a_full_disk_is_an_error_that_keeps_the_old_run(small_disk: Path, tmp_path: Path) -> None:
    write_job(tmp_path / "small-job", replace(JOB, steps=5))
    first = collect([Far(tmp_path / "small-job")], small_disk)
    write_job(tmp_path / "large-job", replace(JOB, steps=3000, run_id="large"))
    with pytest.raises(
        UnwritableError, match="No space left on device; its old content is unchanged"
    ):
        collect([Far(tmp_path / "large-job")], small_disk)
    (folder,) = collected_runs(small_disk)
    assert load_run(folder).steps.equals(first.runs[0][0].steps)


def test_empty_files_do_no_harm(logs: Path, store: Path) -> None:
    (logs / "stdout").touch()
    for state in (False, True):
        collected = collect([Far(logs)], store)
        assert collected.unchanged is state
        assert collected.runs[0][0].ranks == [0, 1, 2]
    (logs / "stdout").write_text("something now")
    assert collect([Far(logs)], store).runs[0][0].ranks == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("databricks:job/123", "DatabricksLogs"),
        ("databricks:cluster/0923-164208-abc", "DatabricksLogs"),
        ("dbfs:/cluster-logs/0923", "DatabricksLogs"),
        ("/Volumes/main/default/logs/0923", "DatabricksLogs"),
        ("/Volumes/disk", "Files"),
        ("mlflow:" + "0" * 32, "MlflowArtifacts"),
        ("0" * 32, "MlflowArtifacts"),
        ("s3://bucket/run", "S3Files"),
        ("s3a://bucket/run", "S3Files"),
        ("gs://bucket/run", "GcsFiles"),
        ("gcs://bucket/run", "GcsFiles"),
        ("az://container/run", "AzureFiles"),
        ("abfs://container/run", "AzureFiles"),
        ("abfss://container@account.dfs.core.windows.net/run", "AzureFiles"),
        ("ssh://host/run", "SshFiles"),
        ("sftp://host/run", "SshFiles"),
        ("hdfs://namenode:8020/run", "HdfsFiles"),
        ("webhdfs://namenode:9870/run", "WebHdfsFiles"),
        ("memory://run", "Files"),
        ("logs/run", "Files"),
    ],
)
def test_the_kind_of_a_source(text: str, kind: str) -> None:
    assert type(open_source(text)).__name__ == kind


@pytest.mark.parametrize(
    ("text", "package", "extra"),
    [
        ("s3://bucket/run", "s3fs", "s3"),
        ("gs://bucket/run", "gcsfs", "gcs"),
        ("az://container/run", "adlfs", "azure"),
    ],
)
def test_a_missing_package_is_named_by_its_extra(
    monkeypatch: pytest.MonkeyPatch, text: str, package: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    source = open_source(text)
    module = sys.modules[type(source).__module__]
    for name, attribute in vars(module).items():
        if hasattr(attribute, "cache_clear"):
            monkeypatch.setattr(module, name, attribute.__wrapped__)
    with pytest.raises(MissingExtraError) as raised:
        source.files()
    protocol = text.partition("bucket")[0].partition("container")[0]
    assert str(raised.value) == (
        f"this needs support for {protocol}, which is not installed: pip install 'stallscope[{extra}]'"
    )


@pytest.mark.any_versions
@pytest.mark.slow
def test_thousands_of_files(tmp_path: Path, store: Path) -> None:
    paths = write_job(tmp_path / "logs", JOB)
    for number in range(3_000):
        (tmp_path / "logs" / f"note-{number}.txt").write_text("no log")
    ((run, _),) = collect([Far(tmp_path / "logs")], store).runs
    assert run.ranks == [0, 1, 2]
    (problem,) = run.problems
    assert problem.where == "3,000 files"
    index = json.loads(
        (fetching.copies_folder(Far(tmp_path / "logs"), store) / "index.json").read_text()
    )
    assert len(index["files"]) == 3_000 + len(paths)


def test_the_command_prints_what_it_collected(
    logs: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for state in ("collected", "unchanged"):
        assert main(["collect", str(logs), "--to", str(store)]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith(f"{store / 'run-a'}: {state}, 3 of 3 ranks, 120 rows")
    assert open_run(str(store)).id == "run-a"


def test_following_ends_with_the_job(logs: Path, store: Path) -> None:
    log = sorted(logs.iterdir())[1]
    whole = log.read_bytes()
    log.write_bytes(whole[: whole.rindex(b"\nend") + 1])
    status: list[int] = []
    words = ["collect", str(logs), "--to", str(store), "--follow", "--every", "0.05"]
    thread = threading.Thread(target=lambda: status.append(main(words)))
    thread.start()
    while not collected_runs(store):
        assert thread.is_alive()
    log.write_bytes(whole)
    thread.join(PATIENCE_SECONDS)
    assert status == [0]
    assert open_run(str(store)).status == "completed"


def test_following_reads_new_bytes(
    logs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_job(logs, replace(JOB, steps=400))[1]
    whole = log.read_bytes()
    log.write_bytes(whole[: whole.rindex(b"\nend") + 1])
    got: list[tuple[int, int]] = []
    part = Files._bytes

    def counted(place: Files, system: Any, path: str, start: int, end: int | None) -> bytes:
        data = part(place, system, path, start, end)
        got.append((start, len(data)))
        return data

    monkeypatch.setattr(Files, "_bytes", counted)
    with collecting_engine("local", follow=True) as engine:
        collect([open_source(str(logs))], store, engine=engine)
        got.clear()
        log.write_bytes(whole)
        collected = collect([open_source(str(logs))], store, engine=engine)
    ((start, size),) = got
    assert start > len(whole) // 2
    assert start + size == len(whole)
    assert collected.runs[0][0].steps.equals(open_run(str(logs)).steps)


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("https://example.com/runs", "a store must be a folder or a URL that can be written to"),
        ("nonsense://bucket/runs", "cannot be opened: Protocol not known: nonsense"),
    ],
)
def test_a_store_is_a_writable_place(
    logs: Path, capsys: pytest.CaptureFixture[str], store: str, says: str
) -> None:
    assert main(["collect", str(logs), "--to", store]) == 2
    assert capsys.readouterr().err == f"stallscope: {store}: {says}\n"


def test_globs_choose_files(logs: Path) -> None:
    files = open_source(f"{logs}/rank-0000[02]*.csv").files()
    assert [file.name[:10] for file in files] == ["rank-00000", "rank-00002"]
    nested = open_source(f"{logs.parent}/l*").files()
    assert {file.name.split("/")[0] for file in nested} == {"logs"}
