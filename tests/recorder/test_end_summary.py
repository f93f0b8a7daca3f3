"""A training's last lines: on rank 0, within limits, and without any effect on the training."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from support.waiting import PATIENCE_SECONDS

from stallscope.collector.recorder.row_lines import OwnSteps
from stallscope.collector.recorder.step_log.line_format import StepRow

from .processes import settings

MS = 1_000_000

# Records 60 steps of 10 ms: 6 ms of input and 3 of compute.
TRAINING = """
import os, signal, sys
from pathlib import Path
from stallscope.collector.recorder import end_summary
from stallscope.collector.recorder.job.world import World
from stallscope.collector.recorder.options import Options
from stallscope.collector.recorder.session import Session
from stallscope.collector.recorder.step_log.line_format import StepRow
from stallscope.collector.recorder.subprocesses import Limits

MS = 1_000_000
end_summary.LIMITS = Limits(240.0, 2_000_000_000)

def train(folder, rank=0, summary=True, **options):
    world = World(rank, 1, None)
    session = Session(Options(folder, summary=summary, **options), world, {}, 0)
    for step in range(60):
        begin = step * 10 * MS
        times = (begin + 6 * MS, begin + 9 * MS, begin + 9 * MS, begin + 9 * MS)
        session.step(StepRow(step, 0, begin, *times, 1, 8, 0))
    session.close()
"""
#: Without the other process, which takes seconds: the lines of one rank.
AT_ONCE = "end_summary.LIMITS = Limits(0.0, 1)\n"
OWN_STEP = "10.0 ms on rank 0, the mean of 50 steps: input 6.0 ms, compute 3.0 ms, other 1.0 ms"


def run(program: str, folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the training with more lines; it trains into a folder ``logs``."""
    return subprocess.run(
        [sys.executable, *options, "-c", TRAINING + program],
        cwd=folder,
        env={**settings(), **env},
        capture_output=True,
        text=True,
    )


def lines_of(text: str) -> list[str]:
    lines = text.splitlines()
    assert len(lines) == 6, text
    assert lines[0].startswith("stallscope: ")
    return lines


def test_the_summary_has_six_lines_on_standard_error(tmp_path: Path) -> None:
    done = run("train('logs')", tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    verdict, step, stragglers, gain, logs, more = lines_of(done.stderr)
    assert verdict == "stallscope: Input holds this run back: batches come late"
    assert "input 6" in step
    assert stragglers == "  stragglers: A single rank does not wait for others"
    assert gain.startswith("  potential gain: Without input stalls: steps ")
    assert logs.startswith(f"  logs: {tmp_path / 'logs'} (run ")
    assert more.startswith(f"  more: stallscope report '{tmp_path / 'logs'}#")


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("train('logs', summary=None)", 0),
        ("train('logs', summary=False)", 0),
        ("train('logs', rank=1)", 0),
        ("Session(Options('logs', summary=True), World(0, 1, None), {}, 0).close()", 0),
        ("train('logs'); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        # Another training has begun, and goes on in another process.
        ("train('logs'); Session(Options('more'), World(1, 2, None), {}, 0)", 0),
        ("train('logs')\nif os.fork(): os.wait(); os._exit(0)", 0),
    ],
    ids=["no terminal", "off", "rank 1", "no step", "killed", "another rank now", "forked"],
)
def test_nothing_is_printed(tmp_path: Path, program: str, status: int) -> None:
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_an_error_of_the_training_stays_the_last_thing_that_is_printed(tmp_path: Path) -> None:
    done = run("train('logs'); raise ValueError('the loss is infinite')", tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: the loss is infinite\n")
    assert "stallscope: " not in done.stderr


def test_the_exit_status_is_the_trainings_own(tmp_path: Path) -> None:
    done = run(f"{AT_ONCE}train('logs'); sys.exit(7)", tmp_path)
    assert done.returncode == 7
    lines_of(done.stderr)


def test_the_last_of_several_trainings_is_summarised_once(tmp_path: Path) -> None:
    done = run(f"{AT_ONCE}train('first'); train('second'); train('second')", tmp_path)
    lines = lines_of(done.stderr)
    assert "/second (" in lines[4]
    # The second training of the folder goes on with the first one's means.
    assert "the mean of 109 steps" in lines[1]


@pytest.mark.parametrize(
    ("limits", "limit"),
    [("0.0, 2_000_000_000", "0 s"), ("240.0, 1_000_000", "0.001 GB of memory")],
    ids=["time", "memory"],
)
def test_at_a_limit_the_rank_says_what_it_knows(tmp_path: Path, limits: str, limit: str) -> None:
    done = run(f"end_summary.LIMITS = Limits({limits}); train('logs')", tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    verdict, step, _, gain, _, more = lines_of(done.stderr)
    assert verdict.endswith(f": the analysis of all ranks was ended at its limit of {limit}")
    assert step == f"  step time: {OWN_STEP}"
    assert gain == "  potential gain: unknown"
    assert more == f"  more: stallscope report {tmp_path / 'logs'}"


def test_without_the_app_the_last_line_says_how_to_get_more(tmp_path: Path) -> None:
    # Without the packages of the environment.
    done = run(
        "train('logs')",
        tmp_path,
        "-S",
        PYTHONPATH=str(Path(__file__).parents[2] / "src"),
    )
    assert (done.returncode, done.stdout) == (0, "")
    verdict, step, *_, more = lines_of(done.stderr)
    assert verdict.startswith("stallscope: no verdict: this needs ")
    assert verdict.endswith(", which is not installed")
    assert step == f"  step time: {OWN_STEP}"
    install = "pip install 'stallscope[app]'"
    assert more == f"  more: {install}, then stallscope report {tmp_path / 'logs'}"


def test_records_without_a_folder_are_reported_on_from_the_output(tmp_path: Path) -> None:
    done = run("train('logs', sink='logging')", tmp_path)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("stallscope:1:")]
    assert lines[0] == "stallscope: no verdict: the log has no file"
    assert lines[1] == f"  step time: {OWN_STEP}"
    assert lines[5].startswith("  more: stallscope report FILE")
    assert not (tmp_path / "logs").exists()


@pytest.mark.broad
def test_the_command_of_an_uploaded_log_reads_it_from_mlflow(tmp_path: Path) -> None:
    program = "import stallscope.collector.recorder.session as s\n"
    # No server is needed to find out what is printed.
    program += "s.watch = s.finish = lambda *_: None\n"
    program += f"train('logs', mlflow_run_id='{'7' * 32}')"
    for limits in ("", AT_ONCE):
        lines = lines_of(run(limits + program, tmp_path).stderr)
        assert lines[5] == f"  more: stallscope report mlflow:{'7' * 32}"


@pytest.mark.broad
def test_output_that_is_closed_or_has_no_such_characters_breaks_nothing(tmp_path: Path) -> None:
    done = run(f"{AT_ONCE}sys.stderr.close(); train('logs')", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run("train('logs')", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "? as fast (95% interval: " in lines_of(done.stderr)[3]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_terminal_shows_it_without_being_asked(tmp_path: Path, stream: str) -> None:
    ours, terminal = pty.openpty()
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    streams[stream] = terminal
    with subprocess.Popen(
        [sys.executable, "-c", f"{TRAINING}{AT_ONCE}train('logs', summary=None)"],
        cwd=tmp_path,
        env=settings(),
        **streams,
    ) as process:
        os.close(terminal)
        shown = everything_from(ours)
        silent_stream = process.stderr if stream == "stdout" else process.stdout
        assert silent_stream is not None
        assert silent_stream.read() == b""
    assert process.returncode == 0
    lines_of(shown)


def everything_from(terminal: int) -> str:
    """Read until the other side is closed, for which Linux has an error."""
    read = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            piece = b""
        if not piece:
            os.close(terminal)
            return read.decode()
        read += piece


@pytest.mark.broad
def test_a_notebook_shows_it_below_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook = nbformat.v4.new_notebook()
    cells = [
        TRAINING,
        f"train({str(tmp_path / 'logs')!r}, summary=None)\nprint('trained')",
        "print('next')",
    ]
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    NotebookClient(
        notebook,
        timeout=int(PATIENCE_SECONDS),
        startup_timeout=int(PATIENCE_SECONDS),
        kernel_name="python3",
    ).execute()
    _, trained, after = (
        "".join(output["text"] for output in cell.outputs) for cell in notebook.cells
    )
    first, _, rest = trained.partition("\n")
    assert first == "trained"
    lines_of(rest)
    assert after == "next\n"


# Figures of one rank


def steps(numbers: Sequence[int], reduced: bool = True) -> OwnSteps:
    """Add steps of 10 ms with 2 ms until each next one."""
    own_steps = OwnSteps()
    for number in numbers:
        begin = number * 12 * MS
        stages = (begin + 1 * MS, begin + 4 * MS, begin + 9 * MS if reduced else None)
        own_steps.add(StepRow(number, 0, begin, *stages, begin + 10 * MS, 1, 8, 0))
    return own_steps


def test_the_parts_of_a_step_add_up_to_it() -> None:
    own_steps = steps(range(60))
    assert (own_steps.steps, own_steps.counted) == (60, 50)
    assert own_steps.whole_ns == 12 * MS
    assert own_steps.parts_ns == [1 * MS, 3 * MS, 5 * MS, 3 * MS]


def test_steps_after_a_gap_do_not_count() -> None:
    assert steps([*range(20), *range(100, 120)]).counted == 29
    own_steps = steps(range(20))
    own_steps.interrupt()
    own_steps.add(StepRow(20, 0, 900 * MS, None, None, None, 910 * MS, 1, 8, 0))
    assert own_steps.counted == 10


def test_stages_that_were_not_measured_have_no_means() -> None:
    own_steps = steps(range(60), reduced=False)
    assert own_steps.whole_ns == 12 * MS
    assert own_steps.parts_ns is None
    assert steps(range(5)).whole_ns is None
