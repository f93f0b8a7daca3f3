"""Parallel tests: tests that share fixtures or servers run on one worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.groups import LONG, group_of, one_case, position

ROOT = Path(__file__).parents[1]


def test_servers_and_pages_have_one_worker_each_and_other_files_are_separate() -> None:
    assert group_of("tests/collector/test_s3.py") == "services"
    assert group_of("tests/collector/test_mlflow_in_a_browser.py") == "services"
    assert group_of("tests/dashboard/test_browser.py") == "browser"
    for file in ("tests/spark/test_on_spark.py", "tests/recorder/test_clock.py"):
        assert group_of(file) == file


def test_reports_have_one_worker() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "tests" / "reports").glob("test_*.py")]
    assert {group_of(str(file)) for file in files} == {"reports", "browser"}


def test_the_longest_tests_start_first() -> None:
    files = (
        *("dashboard/test_browser", "spark/test_on_spark", "reports/test_html", "cli/test_runs"),
        *("parsers/test_contract", "test_memory"),
    )
    positions = [position(f"tests/{file}.py::test_it[1]") for file in files]
    assert positions == sorted(set(positions))
    assert all((ROOT / file).exists() for file in LONG)
    positions = [position(f"{file}::test_it") for file in (*LONG, "tests/training/test_imports.py")]
    assert positions == sorted(set(positions))


def test_one_case_of_each_test_is_chosen() -> None:
    names = [f"tests/test_{number}.py::test_it" for number in range(40)]
    many = [f"{name}[{case}]" for name in names for case in range(9)]
    single = ["tests/test_memory.py::test_alone", "tests/test_memory.py::test_one[case]"]
    chosen = one_case([*many, *single])
    assert set(single) < chosen
    assert sorted(test.partition("[")[0] for test in chosen - set(single)) == sorted(names)
    # Different tests run different cases.
    assert len({test.partition("[")[2] for test in chosen - set(single)}) == 9


@pytest.mark.parametrize("marker", ["horovod", "frameworks"])
def test_all_tests_of_ranks_are_in_the_folder_that_make_runs(marker: str) -> None:
    marked = [
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("test_*.py")
        if f"pytest.mark.{marker}" in path.read_text("utf-8")
    ]
    assert {str(path.parent) for path in marked} == {"tests/training"}


@pytest.mark.any_versions
@pytest.mark.slow
def test_workers_get_whole_files() -> None:
    files = ["tests/recorder/test_clock.py", "tests/recorder/test_facts.py"]
    words = ["-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *words, *files],
        cwd=ROOT,
        # As a separate run, and not as a worker of this one.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    ran = set(re.findall(r"^\[(gw\d)\] .* (tests/\S+\.py)::", done.stdout, re.MULTILINE))
    assert len({worker for worker, _ in ran}) == 2
    assert sorted(file for _, file in ran) == files
