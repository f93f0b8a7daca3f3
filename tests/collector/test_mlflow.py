"""MLflow runs as places of logs, on a real server: uploads can be read back and searched."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.services import tool
from support.step_logs import Job, write_job
from support.uploads import upload_folder

from stallscope.analysis import analyse
from stallscope.catalogue.entry import SHARES
from stallscope.collector.mlflow import client as mlflow_client
from stallscope.collector.mlflow.client import find_runs
from stallscope.collector.mlflow.upload import Uploaded
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.chunk_names import ChunkName
from stallscope.collector.store.fetch import fetch
from stallscope.errors import MissingExtraError, NotFoundError, UnreadableError, UsageError
from stallscope.opening import open_run, open_runs
from stallscope.reports.mlflow_run import write_summary
from stallscope.reports.write import write_reports
from stallscope.run import Run
from stallscope.words import CAUSES

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=60, epochs=2)


@pytest.fixture
def experiment(client: Any, request: pytest.FixtureRequest) -> str:
    return str(client.create_experiment(request.node.name))


@pytest.fixture
def run_id(client: Any, experiment: str) -> str:
    return str(client.create_run(experiment).info.run_id)


def same(first: Run, second: Run) -> bool:
    """Tell whether two runs are equal, apart from their sources."""
    return (
        first.steps.equals(second.steps)
        and first.intervals.equals(second.intervals)
        and first.logs == second.logs
        and (first.id, first.problems) == (second.id, second.problems)
    )


def chunks_of(client: Any, run_id: str, log: str) -> list[str]:
    return [artifact.path for artifact in client.list_artifacts(run_id, f"stallscope/logs/{log}")]


def test_an_uploaded_folder_is_the_same_run(tmp_path: Path, run_id: str) -> None:
    logs = write_job(tmp_path, JOB)
    done = upload_folder(tmp_path, run_id)
    assert done == Uploaded(3, 0, sum(path.stat().st_size for path in logs))
    local = open_run(str(tmp_path))
    assert same(open_run(run_id), local)
    assert same(open_run(f"mlflow:{run_id}"), local)
    assert open_run(run_id).source == f"mlflow:{run_id}"


def test_doing_it_again_sends_nothing(tmp_path: Path, client: Any, run_id: str) -> None:
    write_job(tmp_path, JOB)
    upload_folder(tmp_path, run_id)
    assert upload_folder(tmp_path, run_id) == Uploaded(3, 3, 0)
    assert len(chunks_of(client, run_id, "rank-00001.0.0.steps.csv")) == 1


def test_only_grown_logs_are_sent(tmp_path: Path, client: Any, run_id: str) -> None:
    [log] = write_job(tmp_path, replace(JOB, ranks=1))
    whole = log.read_bytes()
    log.write_bytes(whole[:2000])
    upload_folder(tmp_path, run_id)
    log.write_bytes(whole)
    assert upload_folder(tmp_path, run_id) == Uploaded(1, 0, len(whole) - 2000)
    offsets = [Path(path).name[:20] for path in chunks_of(client, run_id, log.name)]
    assert offsets == [f"{0:020}", f"{2000:020}"]
    [back] = open_source(run_id).files()
    assert back.read() == whole
    assert back.read(1990, 2010) == whole[1990:2010]


def test_collecting_a_run_that_grows_fetches_its_new_end(tmp_path: Path, run_id: str) -> None:
    [log] = write_job(tmp_path / "logs", replace(JOB, ranks=1))
    whole = log.read_bytes()
    fetched: list[int] = []
    for size in (3000, len(whole)):
        log.write_bytes(whole[:size])
        upload_folder(tmp_path / "logs", run_id)
        copies = fetch(open_source(run_id), tmp_path / "store", lambda new, _: fetched.append(new))
        [copy] = copies.files()
        assert copy.read() == whole[:size]
    assert sum(fetched) == len(whole)


def test_a_large_log_is_several_chunks(
    tmp_path: Path, client: Any, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallscope.collector.mlflow.log_upload._LARGEST_CHUNK", 1000)
    [log] = write_job(tmp_path, replace(JOB, ranks=1))
    upload_folder(tmp_path, run_id)
    assert len(chunks_of(client, run_id, log.name)) == -(-log.stat().st_size // 1000)
    assert same(open_run(run_id), open_run(str(tmp_path)))


def test_two_jobs_in_one_run_do_not_mix(tmp_path: Path, run_id: str) -> None:
    later = {"anchor": {"monotonic_ns": 0, "wall_ns": 1_900_000_000_000_000_000}}
    write_job(tmp_path / "1", JOB)
    write_job(tmp_path / "2", replace(JOB, run_id="run-b", facts=later))
    for folder in ("1", "2", "1", "2"):
        upload_folder(tmp_path / folder, run_id)
    names = sorted(file.name for file in open_source(run_id).files())
    assert names[:3] == [f"again-1/rank-0000{rank}.0.0.steps.csv" for rank in range(3)]
    assert names[3:] == [f"rank-0000{rank}.0.0.steps.csv" for rank in range(3)]
    assert [run.id for run in open_runs(run_id)] == ["run-b", "run-a"]
    first = open_run(f"{run_id}#run-a")
    assert first.steps.equals(open_run(str(tmp_path / "1")).steps)


def test_a_log_ends_where_a_chunk_is_missing(tmp_path: Path, client: Any, run_id: str) -> None:
    [log] = write_job(tmp_path, replace(JOB, ranks=1))
    upload_folder(tmp_path, run_id)
    [chunk] = chunks_of(client, run_id, log.name)
    size = log.stat().st_size
    far = tmp_path / str(ChunkName(size + 100, Path(chunk).stem[-8:]))
    far.write_bytes(b"step,1000\n")
    client.log_artifact(run_id, str(far), str(Path(chunk).parent))
    assert [file.size for file in open_source(run_id).files()] == [size]


def test_other_files_of_a_folder_keep_their_names(tmp_path: Path, run_id: str) -> None:
    write_job(tmp_path / "deep" / "er", JOB)
    (tmp_path / "deep" / "launcher.txt").write_text("no line end")
    for name in ("run.json", "README.md", "train.py", ".hidden", "rank-00000.0.0.upload.log"):
        (tmp_path / name).write_text("not for the run")
    upload_folder(tmp_path, run_id)
    files = {file.name: file.read() for file in open_source(run_id).files()}
    assert files.pop("deep/launcher.txt") == b"no line end"
    assert sorted(files) == [f"deep/er/rank-0000{rank}.0.0.steps.csv" for rank in range(3)]


def test_a_folder_without_logs_is_not_uploaded(tmp_path: Path, run_id: str) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(NotFoundError, match="no logs to upload"):
        upload_folder(tmp_path, run_id)


def test_the_error_for_a_missing_run_names_the_server(client: Any, tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    unknown = "0" * 32
    for attempt in (lambda: open_run(unknown), lambda: upload_folder(tmp_path, unknown)):
        with pytest.raises(
            NotFoundError, match=f"mlflow:{unknown}: there is no such run"
        ) as caught:
            attempt()
        assert "MLFLOW_TRACKING_URI" in str(caught.value)


def test_an_unreachable_server_is_an_error_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = tool("server").free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://somebody:hidden@127.0.0.1:{port}")
    # By default, MLflow tries for four minutes.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    with pytest.raises(UnreadableError) as caught:
        open_run("0" * 32)
    message = str(caught.value)
    assert message.count("\n") == 0
    assert f"the request to http://127.0.0.1:{port} failed" in message
    assert "refused" in message
    assert "hidden" not in message


def test_without_a_server_the_error_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UsageError, match="export MLFLOW_TRACKING_URI=http://HOST:5000"):
        open_run("0" * 32)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "nothing"))
    with pytest.raises(UnreadableError, match="nothing is not the address of a server"):
        open_run("0" * 32)


def test_without_a_run_the_error_says_how_to_name_one(client: Any) -> None:
    with pytest.raises(UsageError, match="give mlflow:RUN_ID"):
        open_run("mlflow:")


def test_without_mlflow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'stallscope\[mlflow\]'"):
        open_run("0" * 32)


def test_the_error_for_a_run_with_metrics_only_names_them(client: Any, run_id: str) -> None:
    client.log_metric(run_id, "loss", 0.5)
    client.log_param(run_id, "batch", 32)
    with pytest.raises(NotFoundError) as caught:
        open_run(run_id)
    message = str(caught.value)
    assert (
        "no step log in this run: it has no artifacts, 1 metric (loss), 1 param (batch)" in message
    )
    assert f"stallscope collect FOLDER --to mlflow:{run_id}" in message


def test_artifacts_that_may_be_logs_are_read(client: Any, run_id: str) -> None:
    client.log_text(run_id, "Epoch 1/2\n", "out/stdout.txt")
    client.log_text(run_id, "weights", "checkpoints/epoch-1.h5")
    client.log_text(run_id, "flavors:", "model/MLmodel")
    client.log_text(run_id, "torch", "model/requirements.txt")
    file, metrics = open_source(run_id).files()
    assert (file.name, file.size, file.read()) == ("out/stdout.txt", 10, b"Epoch 1/2\n")
    assert metrics.name == "metrics.mlflow.json"
    with pytest.raises(NotFoundError, match=r"it has 4 artifacts, none of them a log"):
        open_run(run_id)


def test_the_error_for_a_run_with_weights_only_names_them(client: Any, run_id: str) -> None:
    client.log_text(run_id, "weights", "model/data.pth")
    with pytest.raises(NotFoundError, match=r"1 artifact, weights or images"):
        open_run(run_id)


def test_verdict_and_figures_are_on_the_runs_page(
    tmp_path: Path, client: Any, run_id: str, experiment: str
) -> None:
    write_job(tmp_path, replace(JOB, ranks=4, steps=400, slow={(2, "compute"): 30.0}))
    analysis = analyse(open_run(str(tmp_path)))
    [report] = write_reports([analysis], ["html"], tmp_path / "reports")
    write_summary(analysis, run_id, report=report)
    data = client.get_run(run_id).data
    assert data.tags["stallscope.bottleneck"] == "imbalance"
    assert data.tags["stallscope.cause"] == "compute"
    assert data.tags["stallscope.ranks"] == "2"
    assert data.tags["stallscope.run"] == "run-a"
    assert data.tags["stallscope.report"] == "stallscope/report.html"
    shares = {name: data.metrics[f"stallscope.{name}_share"] for name in SHARES}
    assert sum(shares[name] for name in CAUSES) == pytest.approx(1)
    assert shares["compute"] > shares["imbalance"] > 0.2
    assert analysis.step is not None
    assert data.metrics["stallscope.step_ms_mean"] == pytest.approx(analysis.step.mean)
    assert data.metrics["stallscope.samples_per_second"] == analysis.samples_per_second
    assert "stallscope.gap" not in data.metrics
    back = client.download_artifacts(run_id, data.tags["stallscope.report"], str(tmp_path))
    assert Path(back).read_bytes() == report.read_bytes()


def test_runs_are_found_by_the_written_tags(tmp_path: Path, client: Any, experiment: str) -> None:
    name = client.get_experiment(experiment).name
    runs = {}
    for kind, slow in (("slow", {(1, "input"): 40.0}), ("even", {})):
        write_job(tmp_path / kind, replace(JOB, steps=300, slow=slow))
        runs[kind] = client.create_run(experiment).info.run_id
        write_summary(analyse(open_run(str(tmp_path / kind))), runs[kind])
    assert set(find_runs(name)) == set(runs.values())
    for picks in (
        "tags.`stallscope.bottleneck` = 'imbalance'",
        "tags.stallscope.cause = 'input' and tags.stallscope.ranks = '1'",
        "metrics.`stallscope.imbalance_share` > 0.3",
        "metrics.stallscope.step_ms_p95 > 50",
    ):
        assert find_runs(name, picks) == [runs["slow"]]


def test_a_summary_that_is_written_again_replaces_the_verdict(
    tmp_path: Path, client: Any, run_id: str
) -> None:
    for kind, slow in (("slow", {(1, "input"): 40.0}), ("even", {})):
        write_job(tmp_path / kind, replace(JOB, steps=300, slow=slow))
        write_summary(analyse(open_run(str(tmp_path / kind))), run_id)
    tags = client.get_run(run_id).data.tags
    assert tags["stallscope.ranks"] == tags["stallscope.cause"] == "none"
    assert len(client.get_metric_history(run_id, "stallscope.input_share")) == 2


def test_all_pages_of_a_search_are_read(
    client: Any, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_client, "_PAGE", 2)
    runs = [client.create_run(experiment).info.run_id for _ in range(5)]
    assert sorted(find_runs(client.get_experiment(experiment).name)) == sorted(runs)


def test_an_invalid_search_is_an_error_of_one_sentence(
    client: Any, experiment: str, run_id: str
) -> None:
    name = client.get_experiment(experiment).name
    with pytest.raises(NotFoundError, match=f"'nonsense' does not exist; there are .*{name}"):
        find_runs("nonsense")
    with pytest.raises(UsageError, match=r"--filter 'loss > 1 or 2': MLflow reports: "):
        find_runs(name, "loss > 1 or 2")
    with pytest.raises(
        NotFoundError, match=r"has no run that matches the filter metrics\.loss > 7"
    ):
        find_runs(name, "metrics.loss > 7")


def test_nothing_is_left_on_the_disk(tmp_path: Path, run_id: str) -> None:
    write_job(tmp_path / "logs", JOB)
    upload_folder(tmp_path / "logs", run_id)
    (tmp_path / "temporary").mkdir()
    program = "import sys; from stallscope.opening import open_run; open_run(sys.argv[1])"
    subprocess.run(
        ["env", f"TMPDIR={tmp_path / 'temporary'}", sys.executable, "-c", program, run_id],
        check=True,
    )
    assert list((tmp_path / "temporary").iterdir()) == []
