"""Run commands for tests of several of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stallscope.analysis import analyse
from stallscope.catalogue.entry import Entry
from stallscope.catalogue.index import Catalogue
from stallscope.cli.main import main
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run

from .schemas import errors_in
from .step_logs import Job, run_of_job
from .waiting import PATIENCE_SECONDS

#: Runs the words of a command line, and returns status, output and errors.
Commands = Callable[..., tuple[int, str, str]]

_DOCS = Path(__file__).parents[2] / "docs"


def collect_job(folder: Path, job: Job) -> None:
    """Write a job's logs below ``logs`` of a folder, and collect them into its ``store``."""
    place = save_run(run_of_job(folder / "logs" / job.run_id, job), folder / "store")
    run = load_run(place)
    with Catalogue.open(folder / "store") as catalogue:
        catalogue.add(Entry.of(run, analyse(run), place))


def inspected(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    """Return what ``stallscope inspect`` says as JSON, as its schema allows."""
    assert main(["inspect", *words, "--format", "json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert errors_in("inspect", document) == []
    return document


def dashboard_served_once(*words: str, cwd: Path) -> tuple[int, str]:
    """Serve the dashboard until its first page has loaded; return its exit status and its messages."""
    with subprocess.Popen(
        [sys.executable, "-m", "stallscope", "dashboard", *words, "--port", "0"],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
            with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, errors
