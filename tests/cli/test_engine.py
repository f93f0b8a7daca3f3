"""``report --engine spark`` refuses what it cannot read before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.cli.main import main
from stallscope.collector.store import save_run
from stallscope.parsers import read


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine") / "logs"
    write_job(folder, Job(ranks=2, steps=20))
    return folder


@pytest.fixture(scope="module")
def collected(logs: Path) -> Path:
    return save_run(read(str(logs))[0], logs.with_name("store"))


@pytest.mark.parametrize("first", ["run", "baseline", "one of many"])
def test_raw_logs_are_refused(
    logs: Path, collected: Path, capsys: pytest.CaptureFixture[str], first: str
) -> None:
    words = {
        "run": [str(logs)],
        "baseline": [str(collected), "--baseline", str(logs)],
        "one of many": [str(collected), str(logs)],
    }
    assert main(["report", *words[first], "--engine", "spark"]) == 2
    says = capsys.readouterr().err
    assert says.count("\n") == 1
    assert (
        f"{logs}: --engine spark reports on collected runs: stallscope collect {logs} --to" in says
    )
