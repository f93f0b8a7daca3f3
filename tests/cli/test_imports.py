"""Each command imports the packages and the large parts of Stallscope that it uses, and no others.

Imports are most of the time that a command takes on a small run. What a command newly imports belongs
into its line below only if it cannot do without.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_logs"
PROGRAM = """
import contextlib, io, json, sys
from stallscope.cli.main import main
status = 0
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    status = main(sys.argv[1:])
print(json.dumps([status, list(sys.modules)]))
"""
#: Dependencies of the app and of its extras that take longest to import.
PACKAGES = (
    *("cattrs", "dash", "filelock", "flask", "fsspec", "jinja2", "jsonschema", "mlflow", "numpy"),
    *("pandas", "plotly", "pyarrow", "pyspark", "requests", "rich", "scipy", "tenacity", "wandb"),
)
#: The parts of Stallscope and of its dependencies that most commands do without.
PARTS = (
    *(
        "concurrent.futures.process",
        "numpy.f2py.f2py2e",
        "pyarrow.dataset",
        "pyarrow.parquet",
        "scipy.ndimage",
        "scipy.optimize",
        "scipy.stats",
    ),
    *(
        f"stallscope.{name}"
        for name in (
            *("analysis", "api", "batch.anonymous", "catalogue.index", "charts.chart_kinds"),
            *("charts.charts", "collector.mlflow.client"),
            *("collector.store.loading", "conditions", "conditions.condition"),
            *("dashboard", "exports", "spark"),
            *(
                "parsers.epochs_only",
                "parsers.files.archives",
                "parsers.formats.kineto",
                "parsers.launcher_output",
                "reports.comparison",
                "reports.formats.html",
                "reports.run.json_content",
            ),
            *("reports.scaling", "watch"),
        )
    ),
)
READING = "numpy pyarrow stallscope.analysis"
REPORTING = f"{READING} rich scipy"
STORED = "pyarrow.parquet stallscope.collector.store.loading"
CATALOGUE = "stallscope.catalogue.index stallscope.conditions"
#: By its words, what a command imports.
COMMANDS = {
    "report RUN": REPORTING,
    "report RUN --format json": f"{REPORTING} stallscope.reports.run.json_content",
    "report RUN --format html --out OUT": (
        f"{REPORTING} jinja2 stallscope.charts.chart_kinds stallscope.charts.charts "
        "stallscope.reports.formats.html"
    ),
    "report RUN --fail-if step_ms.mean>1000": (
        f"{REPORTING} stallscope.conditions stallscope.conditions.condition"
    ),
    "report STORE": f"{REPORTING} {STORED} {CATALOGUE}",
    "summary RUN": f"{READING} scipy",
    "compare RUN OTHER": f"{REPORTING} stallscope.reports.comparison",
    "inspect RUN": (
        "numpy pyarrow rich stallscope.parsers.epochs_only stallscope.parsers.launcher_output"
    ),
    "runs STORE": f"rich {CATALOGUE}",
    "dashboard --help": f"{READING} rich {CATALOGUE}",
    "export --help": f"{READING} rich stallscope.exports stallscope.collector.mlflow.client",
    "netcheck --help": "",
    "--version": "",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("imports") / "store"
    words = ["collect", str(SAMPLES / "clean"), "--to", str(place)]
    subprocess.run([sys.executable, "-m", "stallscope", *words], check=True, capture_output=True)
    return place


# Older versions of Arrow import pandas themselves.
@pytest.mark.broad
@pytest.mark.any_versions
@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_imports_what_it_uses(words: str, store: Path, tmp_path: Path) -> None:
    places = {
        "RUN": SAMPLES / "slow-input-one-rank",
        "OTHER": SAMPLES / "clean",
        "STORE": store,
        "OUT": tmp_path,
    }
    arguments = [str(places.get(word, word)) for word in words.split()]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    status, modules = json.loads(done.stdout)
    assert status == 0
    assert {*modules} & {*PACKAGES, *PARTS} == {*COMMANDS[words].split()}
