"""Logs in a bucket, read by executors that write into one, too: only the store is a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.spark import equal, need_spark, run_on_spark
from support.step_logs import Job, write_job
from support.stores import Bucket

from stallscope.cli.main import main
from stallscope.collector.loading import load_run
from stallscope.collector.store import collected_runs

pytestmark = pytest.mark.services

PROGRAM = Path(__file__).parent / "program.py"
JOB = Job(ranks=3, steps=120, epochs=2, slow={(1, "input"): 15.0})


@pytest.fixture
def logs(tmp_path: Path, s3_bucket: Bucket) -> Path:
    folder = tmp_path / "logs" / "run-a"
    write_job(folder, JOB)
    s3_bucket.put(folder, "logs/run-a")
    return folder


def on_spark(folder: Path, *commands: list[str]) -> list[dict[str, Any]]:
    """What becomes of commands, where executors have what opens URLs, and keys."""
    words = [{"words": [*command, "--engine", "spark"]} for command in commands]
    (folder / "commands.json").write_text(json.dumps(words))
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    run_on_spark(PROGRAM, folder, STALLSCOPE_TEST_HAVE_FSSPEC="1", **keys)
    told: list[dict[str, Any]] = json.loads((folder / "outcomes.json").read_text())["commands"]
    return told


def test_logs_in_a_bucket_are_reported_on_and_collected_as_here(
    logs: Path, s3_bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_spark()
    url, store = s3_bucket.url("logs/run-a"), tmp_path / "store"
    report = ["report", url, "--format", "json"]
    collect = ["collect", url, "--to", str(store)]
    scratch, missing = s3_bucket.url("meanwhile"), "s3://nobody-has-this/meanwhile"
    reported, collected, nowhere, refused = on_spark(
        tmp_path, [*report, "--scratch", scratch], collect, report, [*report, "--scratch", missing]
    )
    assert (reported["status"], collected["status"]) == (0, 0), (reported, collected)
    assert main(report) == 0
    equal(json.loads(reported["out"]), json.loads(capsys.readouterr().out))
    (folder,) = collected_runs(store)
    assert load_run(folder).rows == JOB.ranks * JOB.steps
    # Nothing is left there, and nothing was fetched.
    assert not s3_bucket.store.client().find(f"{s3_bucket.name}/meanwhile")
    assert not list(store.rglob("index.json"))
    assert (nowhere["status"], refused["status"]) == (2, 2)
    assert "that all machines share, or a URL, with --scratch" in nowhere["err"]
    assert f"{missing}/.stallscope-spark-" in refused["err"]
    assert "an executor of Spark cannot write there" in refused["err"]
