"""Lines to paste from advice and ``tune`` work in the real frameworks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from analysis.advice_setups import every_piece
from training.launching import launch

from stallscope.analysis import analyse
from stallscope.analysis.tuning import AutotuneFile, tune
from stallscope.parsers import read
from stallscope.parsers.formats.autotune import parse_autotune, read_autotune
from stallscope.reports.tuning.tuning_document import commands, environment

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

SHELL = re.compile(r"HOROVOD_|OMP_|unset |horovodrun |torchrun |stallscope |python -c |sudo ip ")
# Petastorm and accelerators are missing here, and TensorFlow's threads cannot be set after computing.
NOT_HERE = re.compile(r'reader|"nccl"|set_intra_op')
HEADER = b"hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
HEADER += b"cycle_time_ms,tensor_fusion_threshold,score\n"


@pytest.mark.parametrize("framework", ["keras", "torch"])
def test_every_line_of_python_runs(training_side: None, tmp_path: Path, framework: str) -> None:
    pasted_lines = {
        piece.line
        for setup, piece in every_piece()
        if setup.framework == framework and piece.line
        if not SHELL.match(piece.line) and not NOT_HERE.search(piece.line)
    }
    # Threads can only be set before anything computes, and a policy affects all later lines.
    lines = sorted(
        pasted_lines, key=lambda line: ("mixed_precision" in line, "config" not in line, line)
    )
    assert len(lines) > 8
    path = tmp_path / "lines.json"
    path.write_text(json.dumps(lines))
    launched = launch(tmp_path / "printed.txt", "pasted.py", framework, str(path))
    launched.succeed()
    assert f"{len(lines)} lines ran" in launched.output


def test_horovodruns_flags_set_the_same_environment(training_side: None, tmp_path: Path) -> None:
    rows = [b"0,1,0, 1,2.5,32,9\n", b"1,0,1, 0,10,0,9\n"]
    files = [AutotuneFile("log", parse_autotune("log", HEADER + row)) for row in rows]
    tuned = [tune([file], [], []).tuned[0] for file in files]
    path = tmp_path / "lines.json"
    path.write_text(json.dumps([commands(tuning)["horovodrun"] for tuning in tuned]))
    launched = launch(tmp_path / "printed.txt", "pasted.py", "flags", str(path))
    launched.succeed()
    for tuning, printed in zip(tuned, launched.output.splitlines()[-2:], strict=True):
        variables = json.loads(printed)
        for line in environment(tuning):
            name, _, value = line.partition("=")
            assert float(variables[name]) == float(value)


def test_a_real_tuners_settings_are_found_in_the_steps(training_side: None, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    printed = tmp_path / "printed.txt"
    launch(printed, "autotuned.py", str(logs), "80", ranks=2).succeed()
    (run,) = read(str(logs))
    path = logs / "autotune.csv"
    file = AutotuneFile(str(path), read_autotune(path))
    (tuned,) = tune([file], [], [analyse(run)]).tuned
    assert tuned.log.settled is not None
    assert tuned.run is not None
    # Horovod's four test points first.
    cycles = [tried.sample.cycle_time_ms for tried in tuned.tried]
    assert cycles[:4] == pytest.approx([5, 50, 25, 10])
    # Rounds have five or six steps: steps 6 to 9, 12 to 14, 18 and 19 are certain, without warm-up.
    for tried, most in zip(tuned.tried, (4, 3, 2, 1), strict=False):
        assert tried.steps <= most
    assert tuned.settled_ms is not None
    assert tuned.setting == tuned.log.settled
