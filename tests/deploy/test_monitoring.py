"""Grafana's dashboards and the alert rules, on a real Prometheus that scrapes figures of recorded runs.

The runs are samples as they were before their end: their logs without the last row.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from support.needing import need
from support.services import tool
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
SCHEMA = ROOT / "tests" / "deploy" / "grafana.schema.json.gz"
TOKEN = "a-token-of-ours_1234"
CLEAN, SLOW_RANK, SLOW_INPUT = "clean", "slow-input-one-rank", "slow-input-all-ranks"


def board_of(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def queries() -> Iterator[tuple[str, str, str]]:
    """Yield dashboard, panel and expression of each query."""
    for path in BOARDS:
        for panel in board_of(path)["panels"]:
            for target in panel["targets"]:
                yield path.stem, panel["title"], target["expr"]


@contextmanager
def watch_of(folder: Path) -> Iterator[str]:
    """Watch the runs in a folder; return the host and port of their figures."""
    words = [str(run) for run in sorted(folder.iterdir())]
    serving = ["--metrics-port", "0", "--metrics-host", "127.0.0.1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "stallscope", "watch", *words, "--stay", *serving],
        env={**os.environ, "STALLSCOPE_TOKEN": TOKEN},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    # A full pipe would stop the command.
    reader = threading.Thread(target=process.stderr.read)
    reader.start()
    try:
        match = re.search(r"http://([\d.]+:\d+)/metrics", line)
        assert match, line
        yield match[1]
    finally:
        process.terminate()
        process.wait()
        reader.join()
        process.stderr.close()


def open_sample(name: str, folder: Path) -> None:
    """Copy a recorded run as it was before its end."""
    shutil.copytree(ROOT / "sample_logs" / name, folder / name)
    for log in (folder / name).glob("*.steps.csv"):
        rows = log.read_text().splitlines(keepends=True)
        log.write_text("".join(row for row in rows if not row.startswith("end,")))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run a Prometheus that has scraped three runs and evaluated all rules."""
    module = tool("prometheus")
    need(module.is_installed(), "there is no Prometheus: make services-env")
    folder = tmp_path_factory.mktemp("monitoring")
    for name in (CLEAN, SLOW_RANK, SLOW_INPUT):
        open_sample(name, folder / "runs")
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    with watch_of(folder / "runs") as target, module.prometheus_server(
        folder / "prometheus", target, TOKEN
    ) as server:
        wait_until(lambda: len(server.query("stallscope_run_info")) == 3, lambda: "three runs")
        wait_until(lambda: server.evaluated() == len(rules), lambda: "all rules")
        raised = 'ALERTS{alertname=~"StallscopeSlow.*"}'
        wait_until(lambda: len(server.query(raised)) == 2, lambda: f"alerts: {server.alerts()}")
        yield server


def run_ids(prometheus: Any) -> dict[str, str]:
    """Return the runs' names by their ids."""
    series = prometheus.query("stallscope_run_info")
    return {entry["metric"]["run_id"]: entry["metric"]["name"] for entry in series}


@pytest.mark.services
@pytest.mark.any_versions
def test_each_query_of_each_panel_returns_series(prometheus: Any) -> None:
    (slow,) = [run for run, name in run_ids(prometheus).items() if name == SLOW_RANK]
    empty = [
        query
        for query in queries()
        if not prometheus.query(query[2].replace("$run_id", slow).replace("$name", SLOW_RANK))
    ]
    assert empty == []


@pytest.mark.services
@pytest.mark.any_versions
def test_variables_of_dashboards_are_labels_of_the_figures(prometheus: Any) -> None:
    for board in map(board_of, BOARDS):
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.fullmatch(
                    r"label_values\((.+), (\w+)\)", variable["query"]
                ).groups()
                series = prometheus.query(metric.replace("$name", CLEAN))
                assert all(entry["metric"][label] for entry in series)
                assert series


@pytest.mark.services
@pytest.mark.any_versions
def test_slow_runs_raise_alerts_and_a_clean_one_does_not(prometheus: Any) -> None:
    names = run_ids(prometheus)
    # On a slow machine these logs, which do not grow, are an alert, and so is a scrape that takes long.
    of_slow_machines = ("StallscopeJobSilent", "StallscopeWatchDown")
    alerts = [
        alert
        for alert in prometheus.alerts()
        if alert["labels"]["alertname"] not in of_slow_machines
    ]
    raised = {(alert["labels"]["alertname"], names[alert["labels"]["run_id"]]) for alert in alerts}
    assert raised == {("StallscopeSlowRanks", SLOW_RANK), ("StallscopeSlowInput", SLOW_INPUT)}
    for alert in alerts:
        assert re.search(r"takes \d+\.?\d*% of each step of run", alert["annotations"]["summary"])


@pytest.mark.services
@pytest.mark.any_versions
def test_alerts_fire_after_their_time_and_for_hangs_and_silence(
    prometheus: Any, tmp_path: Path
) -> None:
    """Replay the scraped figures for twenty minutes, with a hang, silence and an absent watch added."""
    names = run_ids(prometheus)
    (clean,) = [run for run, name in names.items() if name == CLEAN]
    scraped = {
        series_name(entry["metric"]): float(entry["value"][1])
        for entry in prometheus.query('{__name__=~"stallscope_.*"}')
        if entry["metric"]["__name__"] != "stallscope_silent_seconds"
    }
    scraped[f'stallscope_silent_seconds{{run_id="{clean}"}}'] = 0.0
    not_raised = {
        alert
        for alert, added in (
            (("StallscopeJobHangs", CLEAN), {"stallscope_stopped_seconds": 90.0}),
            (("StallscopeJobSilent", CLEAN), {"stallscope_silent_seconds": 400.0}),
            (("StallscopeErrorFinding", CLEAN), {"stallscope_findings": 1.0}),
            (
                ("StallscopeLowGoodput", CLEAN),
                {"stallscope_goodput_ratio": 0.3, "stallscope_job_seconds": 4000.0},
            ),
        )
        if alert not in firing(tmp_path, changed(scraped, clean, added), names)
    }
    assert not_raised == set()
    slow = {("StallscopeSlowRanks", SLOW_RANK), ("StallscopeSlowInput", SLOW_INPUT)}
    assert firing(tmp_path, scraped, names) == slow
    assert firing(tmp_path, scraped, names, minutes=4) == set()
    ended = {
        name: 1.0 if name.startswith("stallscope_completed{") else value
        for name, value in scraped.items()
    }
    assert firing(tmp_path, ended, names) == set()
    down = {'up{job="stallscope",instance="watch:9464"}': 0.0}
    assert firing(tmp_path, down, names) == {("StallscopeWatchDown", None)}


def series_name(labels: dict[str, str]) -> str:
    inside = ",".join(
        f"{name}={json.dumps(value)}" for name, value in labels.items() if name != "__name__"
    )
    return f"{labels['__name__']}{{{inside}}}"


def changed(scraped: dict[str, float], run: str, values: dict[str, float]) -> dict[str, float]:
    return {
        name: values.get(name.partition("{")[0], value) if run in name else value
        for name, value in scraped.items()
    }


def firing(
    folder: Path, series: dict[str, float], names: dict[str, str], minutes: int = 20
) -> set[tuple[str, str | None]]:
    """Return the alerts, with their run, that fire after some minutes of constant series."""
    shutil.copy(RULES, folder)
    test = {
        "rule_files": ["alerts.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": f"{value!r}x{minutes + 1}"}
                    for name, value in series.items()
                ],
                # None are expected: promtool prints those that there are.
                "promql_expr_test": [
                    {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{minutes}m"}
                ],
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert "SUCCESS" in printed or "got:" in printed, printed
    alerts = set()
    for labels in re.findall(r"\{(.*?)\}", printed.partition("got:")[2]):
        known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        alerts.add((known["alertname"], names.get(known.get("run_id", ""))))
    return alerts


def errors_of(board: Any) -> list[str]:
    """Return what Grafana's schemas of dashboards, panels and queries refuse."""
    schemas = json.loads(gzip.decompress(SCHEMA.read_bytes()))

    def errors(schema: Any, part: Any, name: str) -> list[str]:
        checker = jsonschema.Draft7Validator({**schema, "$ref": f"#/definitions/{name}"})
        return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(part)]

    refused = errors(schemas["dashboard"], board, "Dashboard")
    for panel in board["panels"]:
        schema = schemas[panel["type"]]
        refused += errors(schema, panel["options"], "Options")
        if "FieldConfig" in schema["definitions"]:
            custom = panel["fieldConfig"]["defaults"].get("custom", {})
            refused += errors(schema, custom, "FieldConfig")
        for target in panel["targets"]:
            refused += errors(schemas["prometheus"], target, "Dataquery")
    return refused


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_follows_grafanas_schemas(path: Path) -> None:
    assert errors_of(board_of(path)) == []
    damages = (
        lambda panel: panel["gridPos"].update(w="wide"),
        lambda panel: panel["options"].update(colour="red"),
        lambda panel: panel["targets"][0].pop("expr"),
    )
    for damage in damages:
        damaged = board_of(path)
        damage(damaged["panels"][0])
        assert errors_of(damaged)


def test_panels_of_a_dashboard_do_not_overlap() -> None:
    for board in map(board_of, BOARDS):
        cells = [
            (x, y)
            for panel in board["panels"]
            for place in [panel["gridPos"]]
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
