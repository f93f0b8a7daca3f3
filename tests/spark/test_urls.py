"""Executors read logs in a bucket, and write rows and stores into one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.spark import equal, need_spark, run_on_spark
from support.step_logs import Job, write_job
from support.stores import Bucket, Store, put_job

from stallscope.cli.main import main
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.manifests import collected_runs

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
#: In a bucket that does not exist: where to write meanwhile, and a store.
MISSING = "s3://nobody-has-this/meanwhile"
REFUSED = "s3://nobody-has-this/runs"


#: Reports that executors make; a driver makes those on short runs alone.
DIVIDED = ("reported", "store reported", "nowhere", "refused")


@dataclass(frozen=True)
class Cluster:
    """Return a bucket with logs, and the outcome of every command on one Spark."""

    bucket: Bucket
    #: The store in a folder.
    store: Path
    outcomes: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def cluster(s3_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run all commands on one Spark with executors that can open URLs and have keys."""
    need_spark()
    folder = tmp_path_factory.mktemp("urls")
    with pytest.MonkeyPatch.context() as monkeypatch:
        s3_store.use(monkeypatch)
        bucket, store = s3_store.new_bucket(), folder / "store"
        logs = put_job(folder, JOB, bucket)
        put_synthetic_and_parts(bucket, logs)
        commands = {**commands_on_logs(bucket, store), **commands_on_stores(bucket)}
        words = [
            {"words": [*command, "--engine", "spark"], "divided": name in DIVIDED}
            for name, command in commands.items()
        ]
        (folder / "commands.json").write_text(json.dumps(words))
        keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        run_on_spark(PROGRAM, folder, 1, STALLSCOPE_TEST_HAVE_FSSPEC="1", **keys)
        results = json.loads((folder / "outcomes.json").read_text())["commands"]
        yield Cluster(bucket, store, dict(zip(commands, results, strict=True)))
        s3_store.forget()


def put_synthetic_and_parts(bucket: Bucket, logs: Path) -> None:
    """Put a baseline into the bucket, and the job without its last rank."""
    synthetic = logs.with_name("synthetic")
    write_job(synthetic, replace(JOB, slow={}, run_id="synthetic", facts=SYNTHETIC))
    bucket.put(synthetic, "logs/synthetic")
    client = bucket.store.client()
    for log in logs.iterdir():
        if not log.name.startswith("rank-00002"):
            client.pipe_file(f"{bucket.name}/logs/parts/{log.name}", log.read_bytes())


def commands_on_logs(bucket: Bucket, store: Path) -> dict[str, list[str]]:
    """Report on logs in the bucket, with and without a scratch URL, and collect them to a folder."""
    url = bucket.url("logs/run-a")
    report = ["report", url, "--format", "json"]
    return {
        "reported": [*report, "--scratch", bucket.url("meanwhile")],
        "collected": ["collect", url, "--to", str(store)],
        "nowhere": report,
        "refused": [*report, "--scratch", MISSING],
    }


def commands_on_stores(bucket: Bucket) -> dict[str, list[str]]:
    """Collect to the bucket without the last rank, with it, and again; then the baseline."""
    url, parts, store = (bucket.url(name) for name in ("logs/run-a", "logs/parts", "runs"))
    return {
        "first": ["collect", parts, "--to", store],
        "second": ["collect", url, "--to", store],
        "again": ["collect", url, "--to", store],
        "third": ["collect", bucket.url("logs/synthetic"), "--to", store],
        "store reported": ["report", f"{store}#run-a", "--format", "json"],
        "no store": ["collect", url, "--to", REFUSED],
    }


def test_logs_in_a_bucket_are_reported_and_collected_like_local_ones(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("reported", "collected", "nowhere", "refused")
    reported, collected, nowhere, refused = (cluster.outcomes[name] for name in names)
    assert (reported["status"], collected["status"]) == (0, 0), (reported, collected)
    bucket = cluster.bucket
    assert main(["report", bucket.url("logs/run-a"), "--format", "json"]) == 0
    equal(json.loads(reported["out"]), json.loads(capsys.readouterr().out))
    (folder,) = collected_runs(cluster.store)
    assert load_run(folder).rows == JOB.ranks * JOB.steps
    # No temporary files remain there, and nothing was fetched.
    assert not bucket.store.client().find(f"{bucket.name}/meanwhile")
    assert not list(cluster.store.rglob("index.json"))
    assert (nowhere["status"], refused["status"]) == (2, 2)
    assert "that all machines share, or a URL, with --scratch" in nowhere["err"]
    assert f"{MISSING}/.stallscope-spark-" in refused["err"]
    assert "an executor of Spark cannot write there" in refused["err"]


def test_a_store_in_a_bucket_is_written_and_read_by_executors(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Collecting without the last rank, with it, and with the baseline gives the same as one machine."""
    bucket, store = cluster.bucket, cluster.bucket.url("runs")
    client = bucket.store.client()
    names = ("first", "second", "again", "third", "store reported", "no store")
    first, second, again, third, reported, nowhere = (cluster.outcomes[name] for name in names)
    assert first["out"] == f"{store}/run-a: collected, 2 of 3 ranks, 240 rows, completed\n", first
    assert second["out"] == f"{store}/run-a: collected, 3 of 3 ranks, 360 rows, completed\n"
    assert again["out"] == f"{store}/run-a: unchanged, 3 of 3 ranks, 360 rows, completed\n"
    assert (third["status"], reported["status"]) == (0, 0), (third, reported)
    # Neither temporary files nor the run's first version remain.
    left = {
        path.removeprefix(f"{bucket.name}/runs/") for path in client.find(f"{bucket.name}/runs")
    }
    manifest = json.loads(client.cat_file(f"{bucket.name}/runs/run-a/manifest.json"))
    assert {name.removeprefix("run-a/") for name in left if name.startswith("run-a/")} == {
        "manifest.json",
        "summary.json",
        *manifest["files"],
    }
    assert not [name for name in left if name.startswith(".stallscope-spark-")]
    # One machine reads the same from the executors' store and from its own.
    here = tmp_path / "store"
    logs = [bucket.url(f"logs/{name}") for name in ("run-a", "synthetic")]
    assert main(["collect", *logs, "--to", str(here)]) == 0
    capsys.readouterr()
    (figures,) = json.loads(reported["out"])
    assert figures["baseline"] is not None
    for place in (store, str(here)):
        assert main(["report", f"{place}#run-a", "--format", "json"]) == 0
        equal([figures], json.loads(capsys.readouterr().out))
    assert (nowhere["status"], nowhere["err"].count("\n")) == (2, 1)
    assert f"stallscope: {REFUSED}: cannot be " in nowhere["err"]
