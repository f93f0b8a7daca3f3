"""Logs in a bucket, read by executors that write into one, too: rows for a report, and stores."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.spark import equal, need_spark, run_on_spark
from support.step_logs import Job, write_job
from support.stores import Bucket, put_job

from stallscope.cli.main import main
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.runs import collected_runs

pytestmark = pytest.mark.services

PROGRAM = Path(__file__).parent / "program.py"
JOB = Job(
    ranks=3,
    steps=120,
    epochs=2,
    slow={(1, "input"): 15.0},
    facts={"model": "resnet", "synthetic": False},
)
SYNTHETIC = {"model": "resnet", "synthetic": True}


@pytest.fixture
def logs(tmp_path: Path, s3_bucket: Bucket) -> Path:
    return put_job(tmp_path, JOB, s3_bucket)


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


def test_a_store_in_a_bucket_is_written_and_read_by_executors(
    logs: Path, s3_bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Collected without its last rank and again with it, then with its baseline; as on one machine."""
    need_spark()
    client = s3_bucket.store.client()
    synthetic = tmp_path / "logs" / "synthetic"
    write_job(synthetic, replace(JOB, slow={}, run_id="synthetic", facts=SYNTHETIC))
    s3_bucket.put(synthetic, "logs/synthetic")
    (last,) = logs.glob("rank-00002*")
    url, parts, store = (s3_bucket.url(name) for name in ("logs/run-a", "logs/parts", "runs"))
    for log in logs.iterdir():
        if log != last:
            client.pipe_file(f"{s3_bucket.name}/logs/parts/{log.name}", log.read_bytes())
    refused = "s3://nobody-has-this/runs"
    first, second, again, third, reported, nowhere = on_spark(
        tmp_path,
        ["collect", parts, "--to", store],
        ["collect", url, "--to", store],
        ["collect", url, "--to", store],
        ["collect", s3_bucket.url("logs/synthetic"), "--to", store],
        ["report", f"{store}#run-a", "--format", "json"],
        ["collect", url, "--to", refused],
    )
    assert first["out"] == f"{store}/run-a: collected, 2 of 3 rank(s), 240 rows, completed\n", first
    assert second["out"] == f"{store}/run-a: collected, 3 of 3 rank(s), 360 rows, completed\n"
    assert again["out"] == f"{store}/run-a: unchanged, 3 of 3 rank(s), 360 rows, completed\n"
    assert (third["status"], reported["status"]) == (0, 0), (third, reported)
    # Nothing is left of what executors wrote on the way, nor of the run's first state.
    left = {
        path.removeprefix(f"{s3_bucket.name}/runs/")
        for path in client.find(f"{s3_bucket.name}/runs")
    }
    manifest = json.loads(client.cat_file(f"{s3_bucket.name}/runs/run-a/manifest.json"))
    assert {name.removeprefix("run-a/") for name in left if name.startswith("run-a/")} == {
        "manifest.json",
        "summary.json",
        *manifest["files"],
    }
    assert not [name for name in left if name.startswith(".stallscope-spark-")]
    # One machine finds the same in what executors have written, and in a folder of its own.
    here = tmp_path / "store"
    assert main(["collect", url, s3_bucket.url("logs/synthetic"), "--to", str(here)]) == 0
    capsys.readouterr()
    (figures,) = json.loads(reported["out"])
    assert figures["baseline"] is not None
    for own in (store, str(here)):
        assert main(["report", f"{own}#run-a", "--format", "json"]) == 0
        equal([figures], json.loads(capsys.readouterr().out))
    assert (nowhere["status"], nowhere["err"].count("\n")) == (2, 1)
    assert f"stallscope: {refused}: cannot be " in nowhere["err"]
