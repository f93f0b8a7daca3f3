"""Watch runs at URLs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.running_job import RunningJob
from support.services import Sshd
from support.web import web

from stallscope.cli.main import main
from stallscope.collector.store.mirror import temporary_mirrors
from stallscope.conditions.condition import parse
from stallscope.watch.delivery import WatchEvent
from stallscope.watch.places import Place
from stallscope.watch.watcher import Watcher


@pytest.fixture
def job(tmp_path: Path) -> RunningJob:
    return RunningJob(tmp_path / "logs")


def watcher_of(source: str, mirrors: Path) -> Watcher:
    return Watcher(Place(source, None, mirrors, whole=False), [parse("stopped")])


def kinds(events: list[WatchEvent]) -> list[str]:
    return [event.kind for event in events]


@pytest.mark.services
def test_a_job_on_another_host_is_watched_over_ssh(
    job: RunningJob, sshd: Sshd, tmp_path: Path
) -> None:
    watcher = watcher_of(f"ssh://alpha{job.folder}", tmp_path)
    assert watcher.first_look() == []
    job.wait_for_rank_1()
    (event,) = watcher.look()
    assert (event.kind, event.source) == ("holds", f"ssh://alpha{job.folder}")
    shutil.move(job.folder, tmp_path / "elsewhere")
    watcher.look()
    assert kinds(watcher.look()) == ["unreadable"]
    shutil.move(tmp_path / "elsewhere", job.folder)
    job.end()
    assert kinds(watcher.look()) == ["readable", "ceased", "completed"]


@pytest.mark.extras
def test_a_log_on_a_web_server_is_watched(job: RunningJob, tmp_path: Path) -> None:
    log = job.folder / "rank-00000.0.0.steps.csv"
    with web(sized=True, parts=True, files={log.name: log.read_bytes()}) as served:
        watcher = watcher_of(f"{served.url}/{log.name}?token=s3cret", tmp_path)
        assert watcher.first_look() == []
        job.wait_for_rank_1()
        served.files[log.name] = log.read_bytes()
        (event,) = watcher.look()
        served.refuses = 403
        assert watcher.look() == []
        (unreadable,) = watcher.look()
    assert (event.kind, unreadable.kind) == ("holds", "unreadable")
    assert "s3cret" not in f"{event.content()} {unreadable.content()}"


@pytest.mark.parametrize("of_store", ["", "#run-42"])
def test_a_store_at_a_url_is_watched(
    job: RunningJob, tmp_path: Path, of_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path}/store"
    collect = ["collect", str(job.folder), "--to", url]
    assert main(collect) == 0
    with temporary_mirrors() as mirrors:
        watcher = watcher_of(url + of_store, mirrors)
        assert watcher.first_look() == []
        job.wait_for_rank_1()
        assert main(collect) == 0
        (event,) = watcher.look()
        assert (event.kind, event.source) == ("holds", url)
        job.end()
        assert main(collect) == 0
        assert kinds(watcher.look()) == ["ceased", "completed"]
