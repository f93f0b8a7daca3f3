"""Benchmarks that need only the app's environment run to the end."""

from __future__ import annotations

import os

import pytest
from support.benchmarks import FOLDER, benchmark

run = benchmark("run")

NAMES = (
    "analysis_speed",
    "catalogue",
    "command_start",
    "launcher_output",
    "ledger_pandas",
    "machine_figures",
    "recording_scale",
    "report_batch",
    "step_lines",
    "step_log_reading",
)
#: Benchmarks that are not run here: they need other environments, or more than 8 CPU seconds.
LEFT_OUT = {
    "dashboard_speed": "imports Dash in two processes, which takes 9 CPU seconds",
    "first_page": "starts Dash and Chromium in two rounds, which takes 15 CPU seconds",
    "host_part": "trains in .venv-horovod, .venv-keras3 and .venv-mxnet",
    "import_cost": "imports the frameworks of .venv-horovod",
    "keras_overhead": "trains in .venv-horovod",
    "mxnet_overhead": "trains in .venv-mxnet",
    "recorder_memory": "trains in .venv-horovod",
    "spark_cost": "starts Spark, which takes a minute",
    "torch_overhead": "trains in .venv-bench",
    "trace_reading": "compares with HolisticTraceAnalysis in .venv-bench",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_gives_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(FOLDER.parent / "tools"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    result = run.result_of(name, quick=True, limit=600)
    assert result["failed"] is None
    assert result["figures"]


def test_every_benchmark_is_run_or_left_out() -> None:
    assert sorted((*NAMES, *LEFT_OUT)) == run.benchmarks()
