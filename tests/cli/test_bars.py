"""Progress bars of commands: shown on terminals, and never in other output."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import pytest
from rich.console import Console
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

from stallscope.cli import output, progress_bars, tune
from stallscope.cli.main import main
from stallscope.opening import open_runs
from stallscope.parsers import read
from stallscope.parsers.base import ShowProgress

#: Reads a file only when a test allows it, so that the test sees the bar meanwhile.
SLOW = """
import sys

from stallscope.parsers import Parser
from stallscope.parsers.epochs_only import Epoch, epochs_log


class Slow(Parser):
    name = "slow"
    title = "lines that take a while"
    suffix = ".slow"
    has_steps = False

    def recognises(self, file_name, head):
        return True

    def parse(self, path, data):
        sys.stdin.readline()
        facts = {"known_from": "our own lines", "precision": "epochs, to the second"}
        return epochs_log(path, facts=facts, epochs=[Epoch(0, 0, 10**9)], ended=True, size=1)
"""
#: The command line, with bars from the start.
AT_ONCE = (
    "import sys; from stallscope.cli import main, progress_bars; progress_bars._PATIENCE_SECONDS = 0.0; "
    "sys.exit(main.main(sys.argv[1:]))"
)
COMMANDS = [
    ("report", "one"),
    ("report", "one", "two", "--jobs", "1"),
    ("compare", "one", "two"),
    ("tune", "one"),
    ("export", "one", "--format", "csv", "--out", "steps.csv"),
]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Write two folders with three logs each."""
    (tmp_path / "slow_parser.py").write_text(SLOW)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            (tmp_path / folder / f"{number}.slow").write_text("x")
    return tmp_path


@contextmanager
def started(words: tuple[str, ...], logs: Path, errors: int) -> Iterator[subprocess.Popen[bytes]]:
    named = [sys.executable, "-c", AT_ONCE, *words, "--read-as", "slow_parser:Slow"]
    env = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    env |= {"PYTHONPATH": str(logs), "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        named, stdin=pipe, stdout=pipe, stderr=errors, cwd=logs, env=env
    ) as process:
        # If the bar is not shown, the test never lets the parser continue.
        guard = Timer(120, process.kill)
        guard.start()
        try:
            yield process
        finally:
            guard.cancel()
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    # All commands read with the same bar.
    [*COMMANDS[:2], *(pytest.param(words, marks=pytest.mark.variant) for words in COMMANDS[2:])],
    ids=" ".join,
)
def test_a_terminal_shows_how_many_files_are_read(words: tuple[str, ...], logs: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        with started(words, logs, theirs) as command:
            assert command.stdin is not None
            assert command.stdout is not None
            os.close(theirs)
            shown = ""
            for done in range(3):
                while not re.search(rf"reading files [^\r\n]* {done}/3", shown):
                    shown += os.read(ours, 4096).decode(errors="replace")
                command.stdin.write(b"\n")
                command.stdin.flush()
            # The test does not wait for other output.
            command.stdin.close()
            _drain(ours)
            assert command.wait() in (0, 2)
            assert b"reading" not in command.stdout.read()
    finally:
        os.close(ours)
    if "two" in words:
        assert re.search(r"reading +[^\r\n]* 0/2", shown)


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS[:2], ids=" ".join)
def test_other_output_stays_empty(words: tuple[str, ...], logs: Path) -> None:
    with started(words, logs, subprocess.PIPE) as command:
        out, errors = command.communicate(timeout=PATIENCE_SECONDS)
    # Only sentences, and no empty line, which a display leaves without a terminal.
    assert all(line.startswith(b"stallscope: ") for line in errors.splitlines())
    assert b"\x1b" not in out + errors


def _drain(terminal: int) -> None:
    """Read the remaining output: an unread terminal blocks the process that writes to it."""
    # Linux raises this for a terminal that all have closed.
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass


def test_short_work_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    now, shown = [0.0], io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80, get_time=lambda: now[0])
    monkeypatch.setattr(progress_bars, "Console", lambda stderr: console)

    def frame() -> str:
        display = progress_bars._shown.get()
        assert display is not None
        before = len(shown.getvalue())
        display.refresh()
        return shown.getvalue()[before:]

    with progress_bars.show_progress("reading", 1):
        assert "reading …" in frame()
        with progress_bars.show_progress("reading files", 5) as update:
            update(1)
            now[0] = 1.9
            assert "reading …" in frame()
            now[0] = 2.1
            assert "1/5" in frame()
            assert "reading …" not in frame()
        assert "reading …" in frame()
    assert progress_bars._shown.get() is None


@pytest.fixture
def announced() -> list[object]:
    return []


@pytest.fixture
def show_progress(announced: list[object]) -> ShowProgress:
    @contextmanager
    def show_progress(what: str, count: int) -> Iterator[Callable[[int], None]]:
        announced.append((what, count))
        yield announced.append

    return show_progress


def test_sparks_event_logs_count_as_the_files_they_are(
    tmp_path: Path, announced: list[object], show_progress: ShowProgress
) -> None:
    write_job(tmp_path, Job(steps=30))
    name = "app-20261121230239-0000"
    parts = tmp_path / f"eventlog_v2_{name}"
    parts.mkdir()
    for number in (1, 2):
        (parts / f"events_{number}_{name}").write_text("{}\n")
    (tmp_path / "app-20261121230239-0001").write_text("{}\n")
    read(str(tmp_path), show_progress=show_progress)
    (what, done) = announced[0], announced[1:]
    assert what == ("reading files", 5)
    assert done == sorted(done, key=int)
    assert done[:3] == [0, 1, 2]
    assert done[3] in (3, 4)


def test_runs_of_a_store_are_counted(
    tmp_path: Path, announced: list[object], show_progress: ShowProgress
) -> None:
    for name in "ab":
        write_job(tmp_path / name, Job(steps=30, run_id=name))
        assert main(["collect", str(tmp_path / name), "--to", str(tmp_path / "store")]) == 0
    assert len(open_runs(str(tmp_path / "store"), show_progress=show_progress)) == 2
    assert announced == [("reading runs", 2), 0, 1]


def test_files_that_may_be_timelines_are_counted(
    tmp_path: Path,
    announced: list[object],
    show_progress: ShowProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune, "show_progress", show_progress)
    for name in ("a.csv", "b.json", "c.txt"):
        (tmp_path / name).write_text("{}")
    assert main(["tune", str(tmp_path)]) == 2
    assert announced[:4] == [("searching", 3), 0, 1, 2]


def test_files_of_a_baseline_are_counted(
    tmp_path: Path,
    announced: list[object],
    show_progress: ShowProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "show_progress", show_progress)
    for name in ("a", "b", "base"):
        write_job(tmp_path / name, Job(steps=60, run_id=name))
    a, b, base = (str(tmp_path / name) for name in ("a", "b", "base"))
    assert main(["compare", a, b, "--baseline", base]) == 0
    once = [("reading", 1), ("reading files", 2), 0, 1]
    # The two runs are read first.
    assert any(announced[at : at + len(once)] == once for at in range(len(announced)))
    assert announced.count(("reading files", 2)) == 3
