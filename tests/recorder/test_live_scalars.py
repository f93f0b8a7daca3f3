"""Rank 0's series come from another process, and training does not wait for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.subprocesses import check_scalars
from stallscope.parsers.formats.tensorboard import records

from .processes import settings

# Records 60 steps of 10 ms: 6 ms of input and 3 of compute.
TRAINING = """
import logging, os, signal, sys, time
from pathlib import Path
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import StepRow
from stallscope.collector.recorder import subprocesses

MS = 1_000_000
# A busy machine takes longer than a user may wait.
subprocesses.PATIENCE_SECONDS = 900.0
logging.basicConfig(format="%(message)s")

def train(folder, board, rank=0, first=0):
    place = "tensorboard:%s" % Path(board).absolute()
    options = Options(folder, flush_seconds=0.05, summary=False, scalars=place)
    session = Session(options, World(rank, 1, None), {}, first)
    started, first = time.monotonic_ns() - 600 * MS, session.next_step
    for step in range(first, first + 60):
        begin = started + (step - first) * 10 * MS
        times = (begin + 6 * MS, begin + 9 * MS, begin + 9 * MS, begin + 9 * MS)
        session.step(StepRow(step, 0, begin, *times, 1, 8, 0))
    session.close()
"""
FILE = "events.out.tfevents.0.stallscope"


def run(
    program: str, folder: Path, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", TRAINING + program],
        cwd=folder,
        env=settings() | environment,
        capture_output=True,
        text=True,
    )


def events(folder: Path) -> int:
    return len(list(records((folder / FILE).read_bytes())))


def test_all_points_are_there_when_the_program_has_ended(tmp_path: Path) -> None:
    done = run("train('logs', 'board')", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # Six windows of ten steps, and the format's version.
    assert events(tmp_path / "board") == 7


@pytest.mark.broad
def test_several_trainings_in_a_run_are_one_series(tmp_path: Path) -> None:
    done = run("train('logs', 'board'); train('logs', 'board', first=60)", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert events(tmp_path / "board") == 13


@pytest.mark.broad
def test_points_go_on_after_a_training_that_is_killed(tmp_path: Path) -> None:
    # The first windows are written while training goes on.
    program = f"""
train('logs', 'board')
while not Path('board/{FILE}').exists() or not Path('board/{FILE}').stat().st_size:
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(program, tmp_path).returncode == -9
    assert run("train('logs', 'board', first=60)", tmp_path).returncode == 0
    assert events(tmp_path / "board") >= 13


def test_only_rank_0_writes(tmp_path: Path) -> None:
    assert run("train('logs', 'board', rank=1)", tmp_path).stderr == ""
    assert not (tmp_path / "board").exists()


@pytest.mark.broad
def test_a_place_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "board").write_text("")
    done = run("train('logs', 'board')", tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("stallscope: scalars: ")
    assert "no points can be written here" in done.stderr
    assert "training and its log are not affected" in done.stderr
    assert "\nstep,59," in (tmp_path / "logs" / "rank-00000.0.0.steps.csv").read_text()


def test_without_the_app_training_says_what_is_missing(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[2] / "src")
    # Python without packages, but with Stallscope's source.
    done = run("train('logs', 'board')", tmp_path, "-S", PYTHONPATH=source)
    assert done.returncode == 0
    assert "stallscope: scalars: " in done.stderr
    assert not (tmp_path / "board" / FILE).exists()


def test_places() -> None:
    assert check_scalars("wandb:runs") == ("wandb", str(Path("runs").absolute()))
    assert check_scalars("tensorboard:/runs/a:b") == ("tensorboard", "/runs/a:b")
    run_id = "1305334ad75a4c31a59f58f87de4625d"
    assert check_scalars(f"mlflow:{run_id}") == ("mlflow", f"mlflow:{run_id}")


@pytest.mark.parametrize("scalars", ["tensorboard", "tensorboard:", "runs/run-42", "comet:runs"])
def test_other_places_are_refused(scalars: str) -> None:
    with pytest.raises(ValueError, match="scalars is tensorboard:FOLDER, wandb:FOLDER or mlflow"):
        Options("logs", scalars=scalars)


def test_scalars_need_a_log_in_a_folder() -> None:
    with pytest.raises(ValueError, match="sink='both'"):
        Options(None, sink="logging", scalars="tensorboard:runs")
    with pytest.raises(TypeError):
        Options("logs", scalars=3)  # type: ignore[arg-type]
