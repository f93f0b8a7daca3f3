"""The example of docs/new-format.md is a parser after adding its one file and the lines shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the project, with the example's file and lines added."""
    root = tmp_path_factory.mktemp("changed")
    text = (ROOT / "docs" / "new-format.md").read_text()
    (parser,) = re.findall(r"```python\n(.+?)```", text, re.DOTALL)
    line, sample = re.findall(r"^\+(.+\n)", text, re.MULTILINE)
    shutil.copytree(
        ROOT / "parsers", root / "parsers", ignore=shutil.ignore_patterns("__pycache__")
    )
    (root / "parsers" / "formats" / "steps_each.py").write_text(parser)
    _insert(root / "parsers" / "registry.py", '    "keras_output:', line)
    package = root / "src" / "stallscope"
    package.mkdir(parents=True)
    for entry in (ROOT / "src" / "stallscope").iterdir():
        at = root / "parsers" if entry.name == "parsers" else entry.resolve()
        (package / entry.name).symlink_to(at)
    tests = root / "tests"
    for folder in ("support", "parsers"):
        shutil.copytree(ROOT / "tests" / folder, tests / folder)
    (root / "tools").symlink_to(ROOT / "tools")
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    _insert(tests / "support" / "parser_contract.py", '    "keras-output": ', sample)
    return root


@pytest.mark.slow
def test_the_new_parser_passes_the_suite_of_all_parsers(changed: Path) -> None:
    suite = ("tests/parsers/test_contract.py", "-k", "steps-each", f"--basetemp={changed / 'tmp'}")
    done = _run(changed, "-m", "pytest", "-q", *suite)
    assert done.returncode == 0, done.stdout
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= 5


@pytest.mark.broad
def test_the_new_parser_reads_the_output_of_its_trainer(changed: Path, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(
        "".join(f"rank {r}: 100 steps, 1{r}.5 ms each\n" for r in (2, 3))
    )
    done = _run(changed, "-m", "stallscope", "inspect", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"out\.txt +steps-each", done.stdout)
    assert "known: a mean over 100 steps" in done.stdout


@pytest.mark.extras  # ruff is a development dependency
def test_the_new_parser_passes_the_linter(changed: Path) -> None:
    for words in (["check"], ["format", "--check"]):
        done = _run(changed, "-m", "ruff", *words, "parsers/formats/steps_each.py")
        assert done.returncode == 0, done.stdout + done.stderr


def _insert(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, line + before))


def _run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
