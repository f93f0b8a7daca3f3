"""Figures of watched runs, as Prometheus scrapes them and as an OpenTelemetry receiver gets them."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.running_job import RunningJob
from support.step_logs import Job, run_of_job

from stallscope.analysis import analyse
from stallscope.cli.main import main
from stallscope.errors import UsageError
from stallscope.parsers import read
from stallscope.watch.latest import LatestFigures, sent, served

STEP = "stallscope_step_mean_seconds"


@pytest.fixture
def figures(tmp_path: Path) -> LatestFigures:
    latest = LatestFigures()
    for name in ("one", "two"):
        latest.measured(analyse(run_of_job(tmp_path / name, Job(ranks=2, run_id=name))), 0.0)
    return latest


def scraped(address: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
        text: str = answer.read().decode()
        return text


def test_prometheus_reads_the_figures_of_all_runs(figures: LatestFigures) -> None:
    with served(figures, "127.0.0.1", 0) as address:
        families = {
            family.name: family for family in text_string_to_metric_families(scraped(address))
        }
    assert {sample.labels["run_id"] for sample in families[STEP].samples} == {"one", "two"}


def test_only_the_figures_are_served_and_only_to_this_machine(figures: LatestFigures) -> None:
    with served(figures, "127.0.0.1", 0) as address:
        for asked, headers, status in (
            (address.replace("metrics", "etc/passwd"), {}, 404),
            (address, {"Host": "example.com:80"}, 403),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                scraped(asked, **headers)
            assert refused.value.code == status
            refused.value.close()


def test_a_port_in_use_is_one_sentence(figures: LatestFigures) -> None:
    with served(figures, "127.0.0.1", 0) as address:
        port = int(address.split(":")[2].split("/")[0])
        with pytest.raises(UsageError, match=f"--metrics-port {port}: .*give another port"):
            served(figures, "127.0.0.1", port).__enter__()


def test_the_latest_analysis_of_a_run_counts(figures: LatestFigures, tmp_path: Path) -> None:
    figures.measured(analyse(run_of_job(tmp_path / "later", Job(ranks=4, run_id="one"))), 0.0)
    (ranks,) = [figure for figure in figures.all() if figure.name == "stallscope_ranks"]
    assert sorted(value for _, value in ranks.samples if value) == [2, 4]


def test_figures_of_completed_runs_are_forgotten_ten_minutes_later(tmp_path: Path) -> None:
    now = 0.0
    latest = LatestFigures(lambda: now)
    job = RunningJob(tmp_path / "open", run_id="open")
    latest.measured(analyse(run_of_job(tmp_path / "ended", Job(ranks=2, run_id="ended"))), 0.0)
    (run,) = read(str(job.folder))
    latest.measured(analyse(run), 3.0)
    assert values_of(latest, "stallscope_completed") == {"ended": 1.0, "open": 0.0}
    assert values_of(latest, "stallscope_silent_seconds") == {"ended": 0.0, "open": 3.0}
    now = 599.0
    assert set(values_of(latest, STEP)) == {"ended", "open"}
    now = 601.0
    assert set(values_of(latest, STEP)) == {"open"}


def values_of(figures: LatestFigures, name: str) -> dict[str, float | None]:
    return {labels["run_id"]: value for labels, value in figures.samples(name)}


def test_other_machines_need_the_token_except_for_the_health(figures: LatestFigures) -> None:
    token = "a-token-of-ours_1234"
    with served(figures, "0.0.0.0", 0, token) as address:
        address = address.replace("0.0.0.0", "127.0.0.1")
        right = {"Authorization": f"Bearer {token}", "Host": "watch.example:9464"}
        assert STEP in scraped(address, **right)
        for wrong in ({}, {"Authorization": f"Bearer {token}x"}, {"Authorization": "Bearer \xe4"}):
            with pytest.raises(urllib.error.HTTPError) as refused:
                scraped(address, **wrong)
            assert refused.value.code == 401
            refused.value.close()
        assert scraped(address.replace("metrics", "health"), Host="10.0.0.7:9464") == "ok\n"


@pytest.mark.parametrize(
    ("host", "token", "error"),
    [
        ("0.0.0.0", None, "set STALLSCOPE_TOKEN to a token"),
        ("0.0.0.0", "short", "a token has 16 to 200 letters"),
        ("no such host", "a-token-of-ours_1234", "'no such host' is not a name or address"),
    ],
)
def test_a_host_without_a_valid_token_is_refused(
    host: str,
    token: str | None,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("STALLSCOPE_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("STALLSCOPE_TOKEN", token)
    run_of_job(tmp_path, Job())
    serving = ["--metrics-port", "0", "--metrics-host", host]
    assert main(["watch", str(tmp_path), *serving]) == 2
    assert error in capsys.readouterr().err


@contextmanager
def telemetry(status: int = 200) -> Iterator[tuple[str, list[bytes]]]:
    """A receiver of OTLP over HTTP: its address, and the requests that it got."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/metrics?key=s3cret", got
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.extras
def test_a_receiver_of_opentelemetry_gets_the_figures_of_all_runs(figures: LatestFigures) -> None:
    import gzip

    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    notes: list[str] = []
    with telemetry() as (url, got), sent(figures, url, notes.append) as refresh:
        refresh()
    run_ids: dict[str, set[str]] = {}
    for body in got:
        plain = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        for resource in ExportMetricsServiceRequest.FromString(plain).resource_metrics:
            for metric in (figure for scope in resource.scope_metrics for figure in scope.metrics):
                for point in metric.gauge.data_points:
                    ids = {
                        attribute.value.string_value
                        for attribute in point.attributes
                        if attribute.key == "run_id"
                    }
                    run_ids.setdefault(metric.name, set()).update(ids)
    assert run_ids[STEP] == {"one", "two"}
    assert notes == []


@pytest.mark.extras
def test_a_receiver_that_refuses_is_named_without_secrets(figures: LatestFigures) -> None:
    notes: list[str] = []
    with telemetry(status=400) as (url, _), sent(figures, url, notes.append) as refresh:
        refresh()
    assert notes == ["--otlp 127.0.0.1: figures are not delivered"]


def test_what_is_no_url_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_of_job(tmp_path, Job())
    assert main(["watch", str(tmp_path), "--once", "--otlp", "localhost:4318"]) == 2
    assert "--otlp: this is not a URL" in capsys.readouterr().err
