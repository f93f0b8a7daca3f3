"""Reports on many runs at once: what is written, what is reused, and what can fail."""

from __future__ import annotations

import csv
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS, wait_until

from stallscope.batch.state import STATE, lock_folder
from stallscope.batch.workers import Workers
from stallscope.cli.main import main

JOB = Job(ranks=2, steps=60)
FORMATS = "html,md,json,csv,openmetrics"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write three runs of a job, the last one its baseline."""
    for number in (1, 2):
        slow = {(1, "input"): 5.0 * number}
        job = replace(JOB, run_id=f"run-{number}", slow=slow, seed=number)
        write_job(tmp_path / str(number), job)
    write_job(tmp_path / "base", replace(JOB, run_id="base", facts={"synthetic": True}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(out: Path) -> dict[str, int]:
    """Return every file of a folder with its modification time."""
    return {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.name[0] != "."}


@pytest.mark.any_versions
@pytest.mark.slow
def test_parallel_runs_give_the_reports_of_sequential_ones(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = []
    for jobs in ("1", "2"):
        words = ["report", "1", "nowhere", "base", "2", "--format", "json", "--jobs", jobs]
        assert main(words) == 2
        printed = capsys.readouterr()
        assert "nowhere: no such file or folder" in printed.err
        documents.append(json.loads(printed.out))
    assert [document["run"]["id"] for document in documents[0]] == ["run-1", "base", "run-2"]
    assert [document["baseline"] and document["baseline"]["id"] for document in documents[0]] == [
        "base",
        None,
        "base",
    ]
    assert documents[0] == documents[1]


def test_summaries_come_in_the_order_of_the_runs(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "2", "base", "1"]) == 0
    out = capsys.readouterr().out
    assert out.index("run-2:") < out.index("base:") < out.index("run-1:")


@pytest.mark.broad
def test_an_unchanged_batch_is_not_written_again(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "1", "2", "base", "--format", FORMATS]
    assert main(words) == 0
    before = written(logs / "reports")
    assert len(before) == 3 * 5 + 4
    capsys.readouterr()
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "3 of 3 already exist; --force writes them again" in printed.err
    after = written(logs / "reports")
    assert {name for name in before if before[name] != after[name]} == {
        f"index.{suffix}" for suffix in ("html", "md", "json", "csv")
    }
    assert main([*words, "--force"]) == 0
    assert all(at > before[name] for name, at in written(logs / "reports").items())


@pytest.mark.broad
def test_changed_runs_are_reported_again(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "1", "2", "base", "--format", "json", "--out", "out"]
    assert main(words) == 0
    before = written(logs / "out")
    write_job(logs / "1", replace(JOB, run_id="run-1", steps=80))
    assert main(words) == 0
    assert "2 of 3 already exist" in capsys.readouterr().err
    after = written(logs / "out")
    assert [name for name in before if before[name] != after[name]] != []
    assert json.loads((logs / "out" / "run-1.json").read_text())["run"]["steps"] == 80
    assert after["run-2.json"] == before["run-2.json"]
    # The baseline of both runs has changed.
    write_job(logs / "base", replace(JOB, run_id="base", facts={"synthetic": True}, seed=7))
    assert main(words) == 0
    assert "already exist" not in capsys.readouterr().err
    assert written(logs / "out")["run-2.json"] > before["run-2.json"]


def test_a_log_with_an_older_time_is_reported_again(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "1", "2", "--format", "md", "--out", "out"]
    assert main(words) == 0
    before = written(logs / "out")
    # A copy, or another host's clock: the file is as long as before, and older than its report.
    for log in (logs / "1").glob("*.csv"):
        os.utime(log, (log.stat().st_mtime - 3600,) * 2)
    assert main(words) == 0
    assert "1 of 2 already exist" in capsys.readouterr().err
    after = written(logs / "out")
    assert after["run-1.md"] > before["run-1.md"]
    assert after["run-2.md"] == before["run-2.md"]


def test_other_options_make_other_reports(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "1", "2", "--format", "md", "--out", "out"]
    assert main(words) == 0
    assert main([*words, "--what-if", "bandwidth:2"]) == 0
    assert "already exist" not in capsys.readouterr().err
    assert "With 2× the bandwidth" in (logs / "out" / "run-1.md").read_text()
    # The batch still owns a format that is no longer requested.
    assert main([*words[:3], "--format", "csv", "--out", "out"]) == 0
    assert main(words) == 0


def test_a_deleted_report_is_written_again(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "1", "2", "--format", "md", "--out", "out"]
    assert main(words) == 0
    (logs / "out" / "run-2.md").unlink()
    assert main(words) == 0
    assert "1 of 2 already exist" in capsys.readouterr().err
    assert (logs / "out" / "run-2.md").is_file()


@pytest.mark.parametrize("name", ["run-2.md", "index.md"])
def test_foreign_files_are_replaced_only_on_request(
    name: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "out").mkdir()
    (logs / "out" / name).write_text("mine")
    words = ["report", "1", "2", "--format", "md", "--out", "out"]
    assert main(words) == 2
    assert f"{name} already exists: add --force" in capsys.readouterr().err
    assert list(written(logs / "out")) == [name]
    assert (logs / "out" / name).read_text() == "mine"


def test_an_edited_report_is_not_replaced(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "1", "2", "--format", "md", "--out", "out"]
    assert main(words) == 0
    (logs / "out" / "run-1.md").write_text("my notes")
    write_job(logs / "1", replace(JOB, run_id="run-1", steps=80))
    assert main(words) == 2
    assert "run-1.md already exists" in capsys.readouterr().err
    assert (logs / "out" / "run-1.md").read_text() == "my notes"


def test_a_run_called_index_leaves_the_index_its_name(logs: Path) -> None:
    write_job(logs / "i", replace(JOB, run_id="index"))
    assert main(["report", "1", "i", "--format", "md", "--out", "out"]) == 0
    names = sorted(path.name for path in (logs / "out").glob("*.md"))
    assert names == ["index-index.md", "index.md", "run-1.md"]


def test_reports_keep_their_names_when_a_run_with_the_same_name_is_added(logs: Path) -> None:
    words = ["report", "--format", "md", "--out", "out"]
    assert main([*words, "1", "2"]) == 0
    write_job(logs / "other", replace(JOB, run_id="x", facts={"run_name": "run-1"}))
    assert main([*words, "1", "2", "other"]) == 0
    names = sorted(path.name for path in (logs / "out").glob("*.md"))
    assert names == ["index.md", "run-1-x.md", "run-1.md", "run-2.md"]


def test_a_later_job_in_the_same_folder_leaves_the_earlier_report(logs: Path) -> None:
    words = ["report", "--format", "md,csv", "--out", "out"]
    assert main([*words, "1", "2"]) == 0
    for path in (logs / "1").iterdir():
        path.unlink()
    write_job(logs / "1", replace(JOB, run_id="later"))
    assert main([*words, "1", "2"]) == 0
    with (logs / "out" / "index.csv").open(newline="") as file:
        assert {row["run_id"] for row in csv.DictReader(file)} == {"run-1", "run-2", "later"}
    names = sorted(path.name for path in (logs / "out").glob("*.md"))
    assert names == ["index.md", "later.md", "run-1.md", "run-2.md"]


@pytest.mark.slow
def test_a_complete_batch_starts_no_processes(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "1", "2", "--baseline", "base", "--format", "md", "--out", "out"]
    words += ["--what-if", "ranks:64"]
    assert main([*words, "--jobs", "1"]) == 0
    words += ["--jobs", "2"]
    monkeypatch.setattr(Workers, "_submit", None)
    assert main(words) == 0
    assert "2 of 2 already exist" in capsys.readouterr().err
    # A changed baseline is read again.
    write_job(logs / "base", replace(JOB, run_id="base", steps=80, facts={"synthetic": True}))
    monkeypatch.setenv("STALLSCOPE_DEBUG", "1")
    with pytest.raises(TypeError):
        main(words)


def test_a_baseline_that_is_one_of_the_runs_is_one_run_when_the_batch_is_repeated(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "1", "2", "base", "--baseline", "base", "--format", "json", "--out", "out"]
    words += ["--jobs", "1", "--force"]
    printed = []
    for _ in range(2):
        assert main(words) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert len(written(logs / "out")) == 4


def test_two_batches_do_not_write_into_one_folder_at_once(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "1", "2", "--format", "md", "--out", "out"]
    with lock_folder(logs / "out"):
        assert main(words) == 2
    assert capsys.readouterr().err == (
        "stallscope: out: another batch is writing its reports here; wait until it has ended, or name "
        "another folder with --out\n"
    )
    assert not written(logs / "out")
    assert main(words) == 0


def test_a_run_given_twice_is_reported_once(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "1", "1/", "2", str(logs / "1"), "--format", "json"]) == 0
    documents = json.loads(capsys.readouterr().out)
    assert [document["run"]["id"] for document in documents] == ["run-1", "run-2"]


def test_a_damaged_state_does_no_harm(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "1", "2", "--format", "md", "--out", "out"]
    assert main(words) == 0
    state = logs / "out" / STATE
    lines = state.read_text().splitlines()
    torn = next(line for line in lines if line.startswith('{"run"'))
    state.write_text(
        "\n".join(
            [*lines[:2], "[]", '"index"', '{"index": 3}', '{"run": 3}', "no json", torn, torn[:200]]
        )
    )
    capsys.readouterr()
    # The lost line's report is unowned now.
    assert main(words) == 2
    assert "already exists: add --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end programs, even if the tests run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.any_versions
@pytest.mark.slow
def test_a_stopped_batch_says_how_to_resume_and_resumes(
    tmp_path: Path, interruptible: None
) -> None:
    for number in range(20):
        write_job(tmp_path / f"{number:02d}", replace(JOB, run_id=f"run-{number}", seed=number))
    sources = sorted(path.name for path in tmp_path.iterdir())
    program = [sys.executable, "-m", "stallscope", "report", *sources, "--format", "html", "--jobs"]
    with subprocess.Popen(
        [*program, "2"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        # Wait until a run is noted: its file exists a moment earlier.
        wait_until(
            lambda: process.poll() is not None or '{"run"' in _text(tmp_path / "reports" / STATE),
            "a run that is noted",
        )
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, errors
    (message,) = [line for line in errors.splitlines() if line]
    assert message.endswith("of 20 are written; run the same command to continue")
    done = int(message.split()[2])
    assert 0 < done < 20
    assert not list(tmp_path.glob("reports/.*.tmp"))

    again = subprocess.run(
        [*program, "1"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert f"{done} of 20 already exist" in again.stderr
    assert len(list(tmp_path.glob("reports/run-*.html"))) == 20


def _starts_a_process(process: subprocess.Popen[str]) -> bool:
    """Whether a process of the pool exists, which still imports modules."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    lines = [_text(Path(f"/proc/{child}/cmdline")) for child in children]
    return any("spawn_main" in line for line in lines)


@pytest.mark.any_versions
@pytest.mark.slow
@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.variant), 3])
def test_an_interrupt_from_the_terminal_prints_one_line(
    tmp_path: Path, interruptible: None, times: int
) -> None:
    def interrupt(process: subprocess.Popen[str]) -> None:
        for _ in range(times):
            # A terminal sends it to all processes of the command.
            os.killpg(process.pid, signal.SIGINT)

    status, errors = _ended_by(interrupt, tmp_path)
    assert status == 130, errors
    (message,) = [line for line in errors.splitlines() if line]
    assert message.startswith("stallscope: stopped")


@pytest.mark.any_versions
@pytest.mark.slow
@pytest.mark.parametrize(
    "send",
    [os.kill, pytest.param(os.killpg, marks=pytest.mark.variant)],
    ids=["one process", "all processes"],
)
def test_a_termination_prints_one_line_and_leaves_no_process(
    tmp_path: Path, interruptible: None, send: Callable[[int, int], None]
) -> None:
    status, errors = _ended_by(lambda process: send(process.pid, signal.SIGTERM), tmp_path)
    assert status == 143, errors
    assert [line[:19] for line in errors.splitlines() if line] == ["stallscope: stopped"], errors


@pytest.mark.any_versions
@pytest.mark.slow
def test_the_processes_of_a_killed_batch_end_too(tmp_path: Path, interruptible: None) -> None:
    # They have the other ends of its pipes.
    status, _ = _ended_by(subprocess.Popen.kill, tmp_path)
    assert status == -signal.SIGKILL


def _ended_by(end: Callable[[subprocess.Popen[str]], None], tmp_path: Path) -> tuple[int, str]:
    """Start a batch, end it once it has processes, and return its status and errors.

    All its processes have ended then.
    """
    for number in range(3):
        write_job(tmp_path / str(number), replace(JOB, run_id=f"run-{number}"))
    words = ["report", "0", "1", "2", "--format", "html", "--jobs", "2"]
    with subprocess.Popen(
        [sys.executable, "-m", "stallscope", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait_until(
            lambda: process.poll() is not None or _starts_a_process(process), "a pool's process"
        )
        end(process)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, errors


def test_a_killed_batch_resumes_too(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "1", "2", "--format", "html", "--out", "out"]
    assert main(words) == 0
    state = logs / "out" / STATE
    # As if killed after writing a report and before noting it.
    lines = state.read_text().splitlines()
    kept = [line for line in lines if not ("run-2" in line and line.startswith('{"run"'))]
    (key,) = (json.loads(line)["run"] for line in lines if line not in kept)
    begun = json.dumps({"begun": key, "files": ["run-2.html"]})
    state.write_text("\n".join([*kept, begun]) + "\n")
    os.utime(logs / "out" / "run-2.html", (0, 0))
    assert main(words) == 0
    assert "1 of 2 already exist" in capsys.readouterr().err
    assert (logs / "out" / "run-2.html").stat().st_mtime > 0


def test_a_single_run_has_neither_index_nor_state(logs: Path) -> None:
    assert main(["report", "1", "--format", "html,openmetrics", "--out", "out"]) == 0
    assert sorted(written(logs / "out")) == ["run-1.html", "run-1.prom"]
    assert not (logs / "out" / STATE).exists()


def test_a_damaged_run_of_a_store_does_not_hide_the_others(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", "1", "2", "base", "--to", "store"]) == 0
    next((logs / "store" / "run-1").glob("steps/*.parquet")).unlink()
    capsys.readouterr()
    assert main(["report", "store", "--format", "json"]) == 2
    printed = capsys.readouterr()
    assert [document["run"]["id"] for document in json.loads(printed.out)] == ["base", "run-2"]
    assert "store/run-1: the collected run is damaged" in printed.err


@pytest.mark.extras
def test_remote_runs_are_fetched_once(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words: object) -> None:
            if self.command == "GET":
                asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}"
        names = [f"{number}/rank-00000.0.0.steps.csv" for number in (1, 2)]
        assert main(["report", *(f"{where}/{name}" for name in names), "--format", "json"]) == 0
        server.shutdown()
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert sorted(asked) == [f"/{name}" for name in names]
