"""The tutorial runs as printed, and its commands show what it describes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from training.environments import KERAS3, needs
from training.pages import TUTORIAL, blocks

import stallscope as ss
from stallscope.analysis.gains.what_if import WORTH_MENTIONING

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

PATIENCE_SECONDS = 900.0


@dataclass(frozen=True)
class Tutorial:
    """A folder in which all commands of the tutorial have run."""

    folder: Path
    #: The output of each command.
    printed: dict[str, str]


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Tutorial:
    needs(KERAS3)
    folder = tmp_path_factory.mktemp("tutorial")
    program, _ = blocks(TUTORIAL, "python")
    (folder / "train.py").write_text(program)
    commands = [line for block in blocks(TUTORIAL, "sh") for line in block.splitlines()]
    return Tutorial(folder, {command: run(command, folder) for command in commands})


def run(command: str, folder: Path) -> str:
    """Run a command in the environment that has its program."""
    program, *arguments = command.split()
    words = {"python": [str(KERAS3 / "bin" / "python")]}.get(
        program, [sys.executable, "-m", program]
    )
    done = subprocess.run(
        [*words, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# On a busy machine verdicts and intervals vary, but the same stage shrinks.


def test_the_report_shows_the_slow_loader(tutorial: Tutorial) -> None:
    printed = tutorial.printed["stallscope report logs/slow"]
    slow = ss.analyse(tutorial.folder / "logs/slow")
    # While other processes take the cores, steps without input stalls take as long: nothing is gained.
    gains = slow.gains.loc["input", "speedup"] >= WORTH_MENTIONING
    assert ("Without input stalls" in printed) is bool(gains)
    # Its storage takes 32 ms to answer for a batch.
    assert slow.by_cause.loc["input", "ms"] > 30


def test_the_comparison_shows_what_the_fix_gained(tutorial: Tutorial) -> None:
    printed = tutorial.printed["stallscope compare logs/slow logs/fixed"]
    assert re.search(r"^Input .* [−+][0-9.]+ .*$", printed, re.MULTILINE), printed
    # It prints means, which a few pauses of a busy machine change.
    slow, fixed = (ss.analyse(tutorial.folder / "logs" / name) for name in ("slow", "fixed"))
    assert fixed.steps["input_ms"].median() < slow.steps["input_ms"].median()
    assert re.search(r"^loader workers +0 +2$", printed, re.MULTILINE)


def test_what_the_probe_measured_is_printed_next_to_what_the_fix_achieved(
    tutorial: Tutorial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tutorial.folder)
    _, program = blocks(TUTORIAL, "python")
    exec(compile(program, "docs/tutorial.md", "exec"), {})
    assert re.fullmatch(
        # There is no interval if a busy machine leaves too few independent steps.
        r"promised [0-9.]+× \((?:[0-9.]+ to [0-9.]+|nan to nan)×\)\nachieved [0-9.]+×\n",
        capsys.readouterr().out,
    )
