"""MLflow's own page shows the report that was logged to a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

from stallscope.analysis import analyse
from stallscope.opening import open_run
from stallscope.reports.mlflow_run import write_summary
from stallscope.reports.write import write_reports

pytestmark = [pytest.mark.services, pytest.mark.browser]


def test_the_report_is_shown_among_the_artifacts(
    browser: Browser, mlflow_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    run_id = MlflowClient().create_run("0").info.run_id
    write_job(tmp_path / "logs", Job(slow={(1, "compute"): 30.0}))
    analysis = analyse(open_run(str(tmp_path / "logs")))
    [report] = write_reports([analysis], ["html"], tmp_path / "reports")
    write_summary(analysis, run_id, report=report)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_SECONDS * 1000)
    page.goto(f"{mlflow_server}/#/experiments/0/runs/{run_id}/artifacts/stallscope/report.html")
    shown = page.frame_locator("iframe")
    shown.get_by_role("heading", name="Rank 1 holds this run back").first.wait_for()
    page.close()
