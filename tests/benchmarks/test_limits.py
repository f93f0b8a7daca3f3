"""Benchmarks that do not finish within their limit of time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.benchmarks import benchmark

limits, run = map(benchmark, ("limits", "run"))

FIGURE = "from figures import at_most\n"
ENDLESS = "import time\ndef figures(quick):\n    while True:\n        time.sleep(3600)\n"
FINE = f"{FIGURE}def figures(quick):\n    yield at_most('a cost', 4.0, 'µs', 5)\n"
KILLED = f"import os\n{FINE}    os.kill(os.getpid(), 9)\n"
# A parent whose child has a session of its own, as ranks of launchers have; both keep the output open.
FAMILY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; print('child', flush=True); time.sleep(3600)"],
                 start_new_session=True)
time.sleep(3600)
"""


@pytest.fixture(autouse=True)
def benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, program in (("endless", ENDLESS), ("fine", FINE), ("killed", KILLED)):
        (tmp_path / f"{name}.py").write_text(program)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setattr(run, "benchmarks", lambda: ["endless", "fine"])
    monkeypatch.setattr(run, "limit_s", lambda name: 0.5 if name == "endless" else 600)


@pytest.mark.broad
def test_one_that_does_not_finish_says_so_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 1
    assert "endless: did not finish within its limit of 0.5 s and gave no figure" in (
        capsys.readouterr().out
    )
    endless, fine = json.loads(out.read_text())["benchmarks"]
    assert endless["figures"] == []
    assert (fine["failed"], [figure["name"] for figure in fine["figures"]]) == (None, ["a cost"])


@pytest.mark.broad
def test_figures_of_one_that_ends_early_are_kept() -> None:
    result = run.result_of("killed", quick=True, limit=600)
    assert [figure["name"] for figure in result["figures"]] == ["a cost"]
    assert result["failed"] == "ended with -9"


def test_the_sentence_has_the_limit_and_the_figures() -> None:
    assert limits.unfinished(480.0, ["added", "bytes"]) == (
        "did not finish within its limit of 480 s: it gave 2 figures, the last of them 'bytes'"
    )


def test_everything_that_a_benchmark_has_started_ends_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"child\n"
        limits.end_tree(parent.pid)
        # Ends when no process has it open.
        assert parent.stdout.read() == b""


def test_every_limit_is_one_of_a_benchmark() -> None:
    names = {path.stem for path in run.FOLDER.glob("*.py")}
    assert set(limits.LIMITS_S) <= names
