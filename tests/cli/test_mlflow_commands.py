"""MLflow in the commands: folders are uploaded, experiments are reported on, summaries are written
back.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.step_logs import Job, write_job

from stallscope.cli.main import main
from stallscope.exports.exported_run import Selection, exported_run
from stallscope.exports.scalars import scalars_of
from stallscope.opening import open_run

pytestmark = pytest.mark.services

JOB = Job(ranks=3, steps=60, facts={"model": "m"})


@pytest.fixture
def run_ids(client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Upload two runs of an experiment, the logs of the first one twice."""
    experiment = client.create_experiment(f"commands {tmp_path.name}")
    ids = [str(client.create_run(experiment).info.run_id) for _ in range(2)]
    for run_id, slow in zip(ids, ({}, {(1, "input"): 20.0}), strict=True):
        job = replace(JOB, run_id=f"job-{len(slow)}", steps=300, slow=slow)
        write_job(tmp_path / run_id, job)
        assert main(["collect", str(tmp_path / run_id), "--to", f"mlflow:{run_id}"]) == 0
        assert "3 logs, 0 of them already collected" in capsys.readouterr().out
    assert main(["collect", str(tmp_path / ids[0]), "--to", f"mlflow:{ids[0]}"]) == 0
    assert "3 of them already collected, 0 bytes uploaded" in capsys.readouterr().out
    return ids


def test_an_experiment_is_reported_on_and_searched_by_findings(
    client: Any, run_ids: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = f"commands {tmp_path.name}"
    words = ["report", "--experiment", experiment, "--format", "json"]
    assert main([*words, "--to", "mlflow"]) == 0
    printed = capsys.readouterr()
    assert {document["run"]["id"] for document in json.loads(printed.out)} == {"job-0", "job-1"}
    assert printed.err.count("summary and report written") == 2

    picked = "tags.`stallscope.bottleneck` = 'imbalance' and tags.`stallscope.ranks` = '1'"
    assert main([*words, "--filter", picked]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["run"]["source"], document["bottleneck"]["ranks"]) == (
        f"mlflow:{run_ids[1]}",
        [1],
    )
    assert any(
        artifact.path == "stallscope/report.html"
        for artifact in client.list_artifacts(run_ids[1], "stallscope")
    )


def test_a_bare_run_id_is_a_run_and_collects_into_a_store(
    run_ids: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", run_ids[1], "--format", "json"]) == 0
    (direct,) = json.loads(capsys.readouterr().out)
    for state in ("collected", "unchanged"):
        assert main(["collect", run_ids[1], "--to", str(tmp_path / "store")]) == 0
        assert f": {state}, 3 of 3 ranks" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "store"), "--format", "json"]) == 0
    (stored,) = json.loads(capsys.readouterr().out)
    assert stored["ledger"] == direct["ledger"]
    # It goes back to the run that it was collected from.
    assert main(["report", str(tmp_path / "store"), "--format", "json", "--to", "mlflow"]) == 0
    assert f"mlflow:{run_ids[1]}: summary and report written" in capsys.readouterr().err


def test_an_unknown_experiment_is_a_sentence(
    client: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--experiment", "nobody's"]) == 2
    err = capsys.readouterr().err
    assert 'the MLflow experiment "nobody\'s" does not exist' in err
    assert err.count("\n") == 1


def test_series_of_steps_are_metrics_of_the_run(
    client: Any, run_ids: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"mlflow:{run_ids[1]}"
    # Once more, which adds nothing.
    for _ in range(2):
        assert main(["export", place, "--format", "mlflow", "--out", place]) == 0
        assert capsys.readouterr().out == f"{place}\n"
    expected = scalars_of(exported_run(open_run(place), Selection()))
    for name, values in expected.values.items():
        points = client.get_metric_history(run_ids[1], name)
        assert [point.step for point in points] == expected.steps.tolist()
        assert [point.value for point in points] == pytest.approx(values.tolist())
        times = [point.timestamp / 1000 for point in points]
        assert times == pytest.approx(expected.seconds.tolist(), abs=1e-3)
    assert "stallscope_slowest_rank/input_ms" in expected.values

    # Points that follow the run are means of its windows.
    second_run = f"mlflow:{run_ids[0]}"
    assert main(["export", place, "--format", "mlflow", "--out", second_run, "--follow"]) == 0
    followed = client.get_metric_history(run_ids[0], "stallscope/step_ms")
    assert [point.step for point in followed] == list(range(0, 300, 10))
    assert np.mean([point.value for point in followed]) == pytest.approx(
        expected.values["stallscope/step_ms"].mean(), rel=0.01
    )

    unknown = f"mlflow:{'0' * 32}"
    assert main(["export", place, "--format", "mlflow", "--out", unknown]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
