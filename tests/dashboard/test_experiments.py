"""Runs of an MLflow experiment in the dashboard, on a real server: listed at once, read when opened."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.step_logs import Job, write_job
from support.uploads import upload_folder
from support.waiting import PATIENCE_SECONDS

from stallscope.analysis import analyse
from stallscope.cli.dashboard import open_store
from stallscope.cli.main import main
from stallscope.collector.mlflow.client import MlflowRun
from stallscope.collector.run_names import RunAddress
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.runs_table import line_of
from stallscope.dashboard.pages.runs_page import rows_of
from stallscope.dashboard.store import Experiment, RunStore
from stallscope.errors import UnreadableError
from stallscope.opening import open_run
from stallscope.reports.mlflow_run import write_summary

from .content import texts

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=120, epochs=2, slow={(1, "input"): 20.0}, run_id="tracked")


@dataclass(frozen=True)
class Tracked:
    """An experiment, and the ids of its runs."""

    name: str
    #: With logs and what was found, with logs alone, and without logs.
    analysed: str
    logs: str
    empty: str


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked")
    write_job(folder, JOB)
    return folder


@pytest.fixture
def tracked(client: Any, logs: Path, request: pytest.FixtureRequest) -> Tracked:
    experiment = client.create_experiment(request.node.name)
    empty, only_logs, analysed = (
        client.create_run(experiment, run_name=name).info.run_id
        for name in ("without logs", "only logs", "with all")
    )
    for run_id in (only_logs, analysed):
        upload_folder(logs, run_id)
        client.set_terminated(run_id)
    write_summary(analyse(open_run(str(logs))), analysed)
    return Tracked(request.node.name, analysed, only_logs, empty)


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was fetched of which run, in order."""
    fetched: list[str] = []
    download = MlflowRun.download

    def noted(run: MlflowRun, path: str, local: Path) -> None:
        fetched.append(run.id)
        download(run, path, local)

    monkeypatch.setattr(MlflowRun, "download", noted)
    return fetched


def by_id(store: RunStore) -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in rows_of(store, {}, "").rows}


def test_what_was_written_to_runs_is_listed_and_nothing_is_fetched(
    tracked: Tracked, downloads: list[str]
) -> None:
    store, failures = open_store([], experiments=[Experiment(tracked.name)])
    assert failures == []
    lines = by_id(store)
    assert list(lines) == [tracked.analysed, tracked.logs, tracked.empty]
    analysis = analyse(open_run(f"mlflow:{tracked.analysed}"))
    del downloads[:]
    line = lines[tracked.analysed]
    assert (line["name"], line["verdict"], line["ranks"]) == ("with all", "Slow rank 1", "3")
    assert line["source"] == f"mlflow:{tracked.analysed}"
    assert [share["name"] for share in line["shares"]] == [
        share.name for share in analysis.by_cause
    ]
    assert line["throughput"]
    for run_id in (tracked.logs, tracked.empty):
        blank = lines[run_id]
        assert blank["verdict"] == "not analysed"
        assert (blank["throughput"], blank["ranks"], blank["step"], blank["gap"]) == ("",) * 4
        assert blank["shares"] == []
        assert "0 " not in blank["about"] + blank["figures"]
    assert lines[tracked.empty]["about"] == "running"
    assert downloads == []


def test_logs_are_fetched_when_a_run_is_opened_and_once(
    tracked: Tracked, downloads: list[str]
) -> None:
    store = RunStore(sources=[Experiment(tracked.name)])
    for page in ("", "/stragglers"):
        view = view_at(store, f"/run/{tracked.logs}{page}", "")
        assert any("Rank 1" in text or "rank 1" in text for text in texts(view.content))
    assert downloads == [tracked.logs] * JOB.ranks
    # Picked for comparing, another one is fetched, too.
    assert store.analysis(tracked.logs, tracked.analysed).baseline is not None
    assert set(downloads) == {tracked.logs, tracked.analysed}
    assert tracked.empty not in downloads


def test_a_run_without_logs_says_so(tracked: Tracked) -> None:
    store = RunStore(sources=[Experiment(tracked.name)])
    view = view_at(store, f"/run/{tracked.empty}", "")
    assert view.title == "This page cannot be shown"
    assert any(tracked.empty in text for text in texts(view.content))
    with pytest.raises(UnreadableError):
        store.analysis(tracked.empty)


def test_it_is_searched_like_any_other_list(tracked: Tracked) -> None:
    listing = RunStore(sources=[Experiment(tracked.name)]).listing()
    store = RunStore(sources=[Experiment(tracked.name)])
    for search in ("verdict=imbalance", "ranks<8", '"with all"', "imbalance>10%"):
        assert [line["id"] for line in rows_of(store, {}, search).rows] == [tracked.analysed]
    sort = {"sortModel": [{"colId": "ranks", "sort": "desc"}]}
    assert rows_of(store, sort, "").rows[0]["id"] == tracked.analysed
    assert line_of(listing, listing[tracked.analysed])["ranks"] == "3"


def test_a_filter_selects_runs_and_experiments_are_listed_next_to_other_runs(
    tracked: Tracked, client: Any, logs: Path
) -> None:
    second = client.create_experiment(f"{tracked.name} too")
    another = client.create_run(second).info.run_id
    picked = "tags.`stallscope.bottleneck` = 'imbalance'"
    experiments = [Experiment(tracked.name, picked), Experiment(f"{tracked.name} too")]
    store, _ = open_store([RunAddress(str(logs))], experiments=experiments)
    assert [run.id for run in store.runs()] == ["tracked", f"{tracked.analysed}~2", f"{another}~3"]
    assert store.analysis(f"{tracked.analysed}~2").bottleneck.ranks == (1,)


def test_the_server_is_asked_once_in_a_while_and_new_runs_come(
    tracked: Tracked, client: Any
) -> None:
    now = [0.0]
    store = RunStore(sources=[Experiment(tracked.name, clock=lambda: now[0])])
    experiment = client.get_experiment_by_name(tracked.name).experiment_id
    late = client.create_run(experiment, run_name="late").info.run_id
    store.refresh()
    assert late not in by_id(store)
    now[0] = 20.0
    store.refresh()
    assert late in by_id(store)
    client.delete_run(late)
    now[0] = 40.0
    store.refresh()
    assert late not in by_id(store)


def test_the_gap_to_the_baseline_is_the_one_that_was_written(tracked: Tracked, client: Any) -> None:
    client.log_metric(tracked.logs, "stallscope.gap", 0.25)
    lines = by_id(RunStore(sources=[Experiment(tracked.name)]))
    assert lines[tracked.logs]["gap"] == "−25.0%"


def test_tags_of_somebody_else_are_text(tracked: Tracked, client: Any) -> None:
    for name, value in (("bottleneck", "<b>x</b>"), ("cause", "luck"), ("ranks", "1,x,")):
        client.set_tag(tracked.logs, f"stallscope.{name}", value)
    line = by_id(RunStore(sources=[Experiment(tracked.name)]))[tracked.logs]
    assert line["verdict"] == "<b>x</b>"
    client.set_tag(tracked.logs, "stallscope.bottleneck", "imbalance")
    client.set_tag(tracked.logs, "stallscope.ranks", "x")
    assert by_id(RunStore(sources=[Experiment(tracked.name)]))[tracked.logs]["verdict"]


def test_causes_that_are_no_parts_of_a_step_are_known(tracked: Tracked, client: Any) -> None:
    for name, value in (("bottleneck", "compute"), ("cause", "cores"), ("fault", "true")):
        client.set_tag(tracked.logs, f"stallscope.{name}", value)
    line = by_id(RunStore(sources=[Experiment(tracked.name)]))[tracked.logs]
    assert line["verdict"] == "Too few cores"


def test_what_the_command_cannot_do_is_a_sentence(
    tracked: Tracked,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[tuple[tuple[str, ...], str]] = [
        (("--filter", "x"), "--filter needs --experiment"),
        (("--experiment", "nobody's"), "does not exist"),
        (("--experiment", tracked.name, "--filter", "loss > 1 or 2"), "MLflow reports"),
    ]
    for words, sentence in said:
        assert main(["dashboard", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line


def test_the_command_serves_an_experiment_without_any_other_run(
    tracked: Tracked, tmp_path: Path
) -> None:
    words = ["dashboard", "--experiment", tracked.name, "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "stallscope", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
            address = f"{url}download/{tracked.logs}/json"
            with urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as answer:
                document = json.load(answer)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_SECONDS)
    assert document["run"]["source"] == f"mlflow:{tracked.logs}"
    assert document["bottleneck"]["ranks"] == [1]
