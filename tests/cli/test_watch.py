"""``stallscope watch`` on logs that grow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support.commands import collect_job
from support.receiver import receiver
from support.running_job import RunningJob
from support.step_logs import Job
from support.waiting import PATIENCE_SECONDS, wait_until

from stallscope.cli.main import main


@pytest.fixture
def job(tmp_path: Path) -> RunningJob:
    return RunningJob(tmp_path / "logs")


class Watching:
    """The command in a separate process."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self.process = process

    @property
    def out(self) -> str:
        return (self._folder / "out").read_text()

    @property
    def errors(self) -> str:
        return (self._folder / "errors").read_text()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Prevent a second look while several logs are written."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def wait_for(self, text: str) -> None:
        wait_until(
            lambda: text in self.out or self.process.poll() is not None,
            lambda: f"{text!r} in {self.out!r}",
        )
        assert text in self.out, self.errors

    def status(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def watching(folder: Path, *words: object) -> Iterator[Watching]:
    command = [sys.executable, "-m", "stallscope", "watch", *map(str, words), "--interval", "0.05"]
    out, errors = folder / "out", folder / "errors"
    with out.open("wb") as to, errors.open("wb") as errors_to:
        # Tests that a shell runs in the background would hand on that it ignores Ctrl-C.
        listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(command, stdout=to, stderr=errors_to, preexec_fn=listens)
    try:
        yield Watching(folder, process)
    finally:
        process.kill()
        process.wait()


@pytest.mark.broad
def test_a_printed_log_shows_its_steps_and_its_end_while_it_grows(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("compiling the model...\n")
    with watching(tmp_path, log) as watch:
        wait_until(lambda: "waiting for its first steps" in watch.errors, lambda: watch.errors)
        with log.open("a") as growing:
            for step in range(0, 900, 10):
                growing.write(f"iter {step}: loss 2.3, time {250 + step % 7}.00ms, mfu 31.40%\n")
                growing.flush()
        watch.wait_for("steps, 253 ms each")
        assert "train.log" in watch.out
        with log.open("a") as growing:
            growing.write(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
            )
        watch.wait_for("stopped. A GPU's memory ran out")


@pytest.mark.any_versions
def test_it_follows_a_job_that_stops_resumes_and_ends(tmp_path: Path, job: RunningJob) -> None:
    with receiver(503, 503) as got, watching(tmp_path, job.folder, "--notify", got.url) as watch:
        job.wait_for_rank_1()
        watch.wait_for("Rank 1 on alpha waits for its batch")
        job.go_on()
        watch.wait_for("goes on")
        job.end()
        watch.wait_for("completed")
        assert watch.status() == 1
    stopped, goes_on, completed = watch.out.splitlines()
    assert " UTC run-42: stopped since 2026-09-21 " in stopped
    assert " UTC run-42: goes on. " in goes_on
    assert completed.endswith(" UTC run-42: completed.")
    # The second one came within a minute of the first.
    assert [notification["event"] for notification in got.accepted] == ["holds", "completed"]
    assert [rank["rank"] for rank in got.accepted[0]["stopped"]["ranks"]] == [1]
    assert "trying again" in watch.errors


@pytest.mark.broad
@pytest.mark.any_versions
def test_a_second_run_is_watched_until_it_has_completed(tmp_path: Path, job: RunningJob) -> None:
    second_job = RunningJob(tmp_path / "other", run_id="run-43")
    with watching(tmp_path, job.folder, second_job.folder, "--format", "json") as watch:
        job.end()
        watch.wait_for('"completed"')
        with watch.paused():
            second_job.hang(dict.fromkeys(range(3), "ready"))
        watch.wait_for('"holds"')
        second_job.end()
        assert watch.status() == 1
    events = [json.loads(line) for line in watch.out.splitlines()]
    assert [(event["event"], event["run"]["id"]) for event in events] == [
        ("completed", "run-42"),
        ("holds", "run-43"),
        ("ceased", "run-43"),
        ("completed", "run-43"),
    ]
    assert watch.errors == ""


@pytest.mark.any_versions
def test_it_stays_for_runs_to_come(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with watching(tmp_path, folder, "--stay") as watch:
        wait_until(lambda: "waiting for its first steps" in watch.errors, lambda: watch.errors)
        RunningJob(folder / "first", run_id="run-1").end()
        watch.wait_for("run-1: completed")
        RunningJob(folder / "second", run_id="run-2").end()
        watch.wait_for("run-2: completed")
        watch.process.send_signal(signal.SIGTERM)
        assert watch.status() == 143
    assert main(["watch", str(folder), "--stay", "--once"]) == 2


@pytest.mark.broad
@pytest.mark.any_versions
def test_ctrl_c_ends_it_quietly(tmp_path: Path, job: RunningJob) -> None:
    job.wait_for_rank_1()
    with watching(tmp_path, job.folder) as watch:
        watch.wait_for("stopped since")
        watch.process.send_signal(signal.SIGINT)
        assert watch.status() == 130
    assert watch.errors == ""


def test_once_returns_its_result_as_status(
    job: RunningJob, capsys: pytest.CaptureFixture[str]
) -> None:
    once = ["watch", str(job.folder), "--once"]
    assert main(once) == 0
    assert capsys.readouterr().out == ""
    job.wait_for_rank_1()
    assert main([*once, "--when", "stopped.seconds>60"]) == 0
    assert main([*once, "--when", "stopped.seconds>60", "--when", "stopped"]) == 1
    assert "Rank 1 on alpha" in capsys.readouterr().out


def test_it_ends_after_a_completed_run(job: RunningJob, capsys: pytest.CaptureFixture[str]) -> None:
    job.end()
    assert main(["watch", str(job.folder)]) == 0
    assert capsys.readouterr().out.endswith("run-42: completed.\n")


def test_a_store_without_open_runs_is_not_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collect_job(tmp_path, Job())
    assert main(["watch", str(tmp_path / "store")]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "stallscope: all runs have completed already\n")


def test_conditions_may_compare_with_a_baseline(
    tmp_path: Path, job: RunningJob, capsys: pytest.CaptureFixture[str]
) -> None:
    base = RunningJob(tmp_path / "base", run_id="base", facts={"synthetic": True}, compute_ms=10)
    when = ["--when", "step_ms.mean>1.3*baseline", "--baseline", str(base.folder)]
    assert main(["watch", str(job.folder), "--once", *when]) == 1
    assert "step_ms.mean>1.3*baseline.step_ms.mean holds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["--when", "stoped"],
            "--when: column 1: there is no figure 'stoped'; did you mean stopped?",
        ),
        (["--interval", "0"], "--interval 0: give a number of seconds above 0"),
        (["--format", "html"], "there is no format 'html'"),
        (["--notify", "no-such-command"], "--notify: there is no command 'no-such-command'"),
        (["nowhere"], "nowhere: no such file or folder"),
    ],
)
def test_an_unwatchable_place_is_an_error(
    job: RunningJob, words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(job.folder), *words]) == 2
    shown = capsys.readouterr()
    assert error in shown.err
    assert shown.out == ""
