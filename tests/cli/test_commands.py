"""The commands as a user types them, and what a separate process adds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import dashboard_served_once
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

from stallscope.cli.main import main

JOB = Job(ranks=2, steps=200, allreduce_ms=0.5)


Command = Callable[..., "subprocess.CompletedProcess[str]"]


def in_a_separate_process(
    *words: object, cwd: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stallscope", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture
def stallscope(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process, which has imported everything."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as ended:  # argparse's
            status = int(ended.code or 0)
        return subprocess.CompletedProcess(words, status, *capsys.readouterr())

    return command


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write_job(tmp_path / "slow", replace(JOB, slow={(1, "input"): 9.0}))
    write_job(tmp_path / "base", replace(JOB, run_id="base", facts={"synthetic": True}))
    single = replace(JOB, ranks=1, run_id="one", facts={"synthetic": True})
    write_job(tmp_path / "one", single)
    return tmp_path


@pytest.mark.broad
@pytest.mark.parametrize("words", [("inspect", "base"), ("report", "base"), ("report", ".")])
def test_a_reader_that_closes_the_pipe_is_no_error(logs: Path, words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "stallscope", *words],
            cwd=logs,
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.any_versions
def test_report_prints_a_summary_that_fits_a_terminal(logs: Path) -> None:
    done = in_a_separate_process("report", "slow", "--baseline", "base", cwd=logs)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rank 1" in done.stdout
    for name in ("input", "compute", "other", "waiting for slow ranks", "allreduce"):
        assert name in done.stdout.lower()
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_folder_of_several_jobs_is_a_list_of_runs(stallscope: Command, logs: Path) -> None:
    done = stallscope("report", ".", cwd=logs)
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines, hint = done.stdout.splitlines()
    assert head.split() == ["run", "ranks", "steps", "step", "verdict", "gain"]
    assert {line.split()[0] for line in lines} == {"run-a", "base", "one"}
    (slow,) = [line for line in lines if line.startswith("run-a")]
    assert "Slow rank 1" in slow
    says, _, command = hint.partition(": ")
    assert says == "for one run"
    shown = stallscope(*command.split()[1:], cwd=logs)
    assert (shown.returncode, shown.stdout.count("╭")) == (0, 1)


@pytest.mark.broad
def test_a_folder_that_several_jobs_logged_into_is_a_list_as_well(
    stallscope: Command, logs: Path
) -> None:
    for folder in ("base", "one"):
        for log in (logs / folder).iterdir():
            log.rename(logs / "slow" / f"{folder}-{log.name}")
    done = stallscope("report", "slow", cwd=logs)
    assert {line.split()[0] for line in done.stdout.splitlines()[1:-1]} == {"run-a", "base", "one"}
    # A gate is about all of them, and so are files.
    done = stallscope("report", "slow", "--format", "json", "--fail-if", "size<2", cwd=logs)
    assert (done.returncode, len(json.loads(done.stdout))) == (1, 3)
    assert done.stderr.splitlines() == ["stallscope: --fail-if held in one: size is 1, under 2"]
    done = stallscope("report", "slow", "--format", "md", cwd=logs)
    assert {Path(line).name for line in done.stdout.splitlines()} == {
        *("run-a.md", "base.md", "one.md", "index.md")
    }


@pytest.mark.broad
@pytest.mark.any_versions
def test_json_goes_to_standard_output_alone(logs: Path) -> None:
    done = in_a_separate_process(
        "report", "slow", "--baseline", "base", "--format", "json", cwd=logs
    )
    assert done.returncode == 0
    (document,) = json.loads(done.stdout)
    assert document["bottleneck"]["kind"] == "imbalance"
    assert document["bottleneck"]["ranks"] == [1]
    assert document["baseline"]["id"] == "base"
    assert not (logs / "reports").exists()


def test_a_baseline_among_the_runs_is_found(stallscope: Command, logs: Path) -> None:
    done = stallscope("report", "slow", "base", "--format", "json", cwd=logs)
    slow, base = json.loads(done.stdout)
    assert slow["baseline"]["id"] == "base"
    assert base["baseline"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("slow", "base", "one"),
        ("slow", "--baseline", "base", "--baseline", "one"),
        ("slow", "--baseline", "one", "--baseline", "base"),
        ("slow", "one", "--baseline", "base"),
    ],
)
def test_a_run_has_two_baselines_named_or_found(
    stallscope: Command, logs: Path, words: tuple[str, ...]
) -> None:
    done = stallscope("report", *words, "--format", "json", cwd=logs)
    assert (done.returncode, done.stderr) == (0, "")
    base = json.loads(done.stdout)[0]["baseline"]
    assert (base["id"], base["single"]["id"]) == ("base", "one")
    assert base["decomposition"]["scale"]["ms"] > 0


def test_questions_are_answered_in_every_format(stallscope: Command, logs: Path) -> None:
    asked = ("--what-if", "bandwidth:4", "--what-if", "ranks:64", "--network-bandwidth", "12.5")
    done = stallscope("report", "slow", *asked, "--format", "json", cwd=logs)
    assert done.returncode == 0, done.stderr
    (document,) = json.loads(done.stdout)
    assert [gain["fix"] for gain in document["what_if"]][-2:] == ["bandwidth:4", "ranks:64"]
    assert all(gain["extrapolated"] for gain in document["what_if"][-2:])
    shown = stallscope("report", "slow", *asked, cwd=logs).stdout
    assert "With 4× the bandwidth (extrapolated)" in shown
    assert "On 64 ranks (extrapolated)" in shown
    assert stallscope("report", "slow", *asked, "--format", "html,md,csv", cwd=logs).returncode == 0
    for suffix in ("html", "md"):
        assert "On 64 ranks (extrapolated)" in (logs / "reports" / f"run-a.{suffix}").read_text()


def test_ranks_between_existing_runs_are_not_extrapolated(stallscope: Command, logs: Path) -> None:
    for ranks in (4, 8):
        write_job(logs / str(ranks), replace(JOB, ranks=ranks, run_id=f"run-{ranks}"))
    words = ("slow", "4", "8", "--what-if", "ranks:4", "--format", "json")
    done = stallscope("report", *words, cwd=logs)
    gains = {gain["fix"]: gain for gain in json.loads(done.stdout)[0]["what_if"]}
    assert gains["ranks:4"]["extrapolated"] is False
    assert gains["ranks:4"]["speedup"] > 1.5


def test_a_question_without_an_answer_is_a_warning(stallscope: Command, logs: Path) -> None:
    done = stallscope("report", "one", "--what-if", "ranks:64", "--format", "json", cwd=logs)
    (document,) = json.loads(done.stdout)
    assert document["warnings"] == [
        "--what-if ranks:64: it needs a run of this job on several ranks"
    ]
    write_job(logs / "unstamped", replace(JOB, stamps=False))
    words = ("unstamped", "--what-if", "bandwidth:4", "--format", "json")
    (document,) = json.loads(stallscope("report", *words, cwd=logs).stdout)
    assert document["what_if"] == []
    assert document["warnings"] == [
        "--what-if bandwidth:4: these logs do not show where the time goes"
    ]


def test_network_bandwidth_shows_what_backward_hides(stallscope: Command, logs: Path) -> None:
    job = replace(JOB, allreduce_ms=2.0, facts={"gradient_bytes": 25_000_000})
    write_job(logs / "known", job)
    words = ("known", "--network-bandwidth", "5", "--format", "json")
    (document,) = json.loads(stallscope("report", *words, cwd=logs).stdout)
    communication = document["communication"]
    assert communication["network_bandwidth_gb_s"] == 5
    assert communication["whole_ms"] == pytest.approx(5)
    assert communication["hidden_ms"] == pytest.approx(3, abs=0.1)


def test_files_are_written_once_and_not_overwritten(stallscope: Command, logs: Path) -> None:
    words = ("report", "slow", "--format", "html,md,json,csv")
    done = stallscope(*words, cwd=logs)
    assert done.returncode == 0, done.stderr
    written = sorted(path.name for path in (logs / "reports").iterdir())
    assert written == ["run-a.csv", "run-a.html", "run-a.json", "run-a.md"]
    again = stallscope(*words, cwd=logs)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert stallscope(*words, "--force", cwd=logs).returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("report", "nowhere"), "nowhere: no such file or folder"),
        (("report",), "name a RUN to report on, or an --experiment"),
        (("report", "slow", "--filter", "x"), "--filter needs --experiment"),
        (("report", "slow", "--to", "mlflow:x"), "give mlflow, or mlflow:RUN_ID"),
        (("report", "slow", "--to", "mlflow"), "did not come from MLflow"),
        (("report", "empty"), "no logs in an empty folder; looked for"),
        (("report", "notes.txt"), "no logs in 1 file"),
        (("report", "slow", "--format", "pdf"), "no report format 'pdf': there are html, md"),
        (("report", "slow", "--read-as", "x"), "no parser 'x': there are step-log"),
        (("report", "slow", "--out", "x"), "--out needs --format"),
        (("report", "sloww"), "sloww: no such file or folder; did you mean slow?"),
        (("report", "slow/rank-00000.0.0.step.csv"), "did you mean slow/rank-00000.0.0.steps.csv?"),
        (("report", "nowhere/at/all"), "nowhere/at/all: no such file or folder"),
        (("report", "slow#nonsense"), 'slow: no such run: "nonsense"; there is run-a'),
        (("report", "slow#rum-a"), 'slow: no such run: "rum-a"; did you mean "run-a"?'),
        (("report", "nonsense://bucket"), "cannot be opened: Protocol not known"),
        (("dashboard", "nowhere"), "nowhere: no such file or folder"),
        (("dashboard", "slow", "--host", "0.0.0.0"), "0.0.0.0"),
        (("collect", "nowhere", "--to", "store"), "nowhere: no such file or folder"),
    ],
)
def test_bad_input_gets_a_sentence_and_status_2(
    stallscope: Command, logs: Path, words: tuple[str, ...], sentence: str
) -> None:
    (logs / "empty").mkdir()
    (logs / "notes.txt").write_text("remember the milk")
    done = stallscope(*words, cwd=logs)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--what-if", "bandwidth:0"), "--what-if: 'bandwidth:0' is not a what-if question"),
        (("--what-if", "x:4"), "'x:4' is not a what-if question: use bandwidth:4 or ranks:64"),
        (("--network-bandwidth", "-1"), "--network-bandwidth -1: give GB/s"),
        (("--network-bandwidth", "fast"), "--network-bandwidth fast: give GB/s"),
        (("--network-bandwidth", "inf"), "--network-bandwidth inf: give GB/s"),
        (("--baseline", "nowhere") * 3, "--baseline takes at most two runs"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(
    stallscope: Command, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = stallscope("report", "nowhere", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_baselines_need_different_sizes(stallscope: Command, logs: Path) -> None:
    done = stallscope("report", "slow", "--baseline", "base", "--baseline", "slow", cwd=logs)
    assert done.returncode == 2
    assert "these are on 2 and 2 ranks" in done.stderr


@pytest.mark.parametrize("words", [("dashboard", "--nonsense"), ("report", "--nonsense", "x")])
def test_bad_usage_is_status_2(stallscope: Command, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = stallscope(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "usage: stallscope" in done.stderr


def test_one_bad_run_does_not_stop_the_others(stallscope: Command, logs: Path) -> None:
    done = stallscope("report", "nowhere", "slow", "--format", "json", cwd=logs)
    assert done.returncode == 2
    assert [document["run"]["id"] for document in json.loads(done.stdout)] == ["run-a"]
    assert done.stderr.count("\n") == 1


def test_collected_runs_report_like_their_logs_and_find_their_baseline(
    stallscope: Command, logs: Path
) -> None:
    done = stallscope("collect", "slow", "base", "--to", "store", cwd=logs)
    assert done.returncode == 0, done.stderr
    words = ("report", "slow", "--baseline", "base", "--format", "json")
    (direct,) = json.loads(stallscope(*words, cwd=logs).stdout)
    again = stallscope("report", "store#run-a", "--format", "json", cwd=logs)
    (stored,) = json.loads(again.stdout)
    # A store's source is the same place from every folder.
    direct["run"]["source"] = str(logs / "slow")
    assert stored == direct


@pytest.mark.broad
@pytest.mark.any_versions
def test_the_dashboard_serves_what_it_announces_and_stops_cleanly(logs: Path) -> None:
    status, errors = dashboard_served_once("slow", cwd=logs)
    assert status in (0, 130)
    assert "Traceback" not in errors


def test_a_missing_extra_is_named(logs: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "rich"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module 'rich'\", name='rich')"
    )
    done = in_a_separate_process("report", "slow", cwd=logs, PYTHONPATH=str(hidden.parent))
    assert done.returncode == 2
    assert "pip install 'stallscope[app]'" in done.stderr


@pytest.mark.slow
def test_the_demo_reports_on_every_sample_run(tmp_path: Path) -> None:
    done = in_a_separate_process("demo", "--no-serve", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    reports = sorted(path.stem for path in (tmp_path / "reports" / "demo").glob("*.html"))
    assert reports == [
        "busy-rank-0",
        "clean",
        "ranks-1",
        "ranks-4",
        "slow-compute-rank",
        "slow-input-all-ranks",
        "slow-input-one-rank",
        "synthetic",
    ]
    lines = done.stdout.splitlines()
    assert {"clean: No fault found", "ranks-1: No fault found"} <= {*lines}
    assert "slow-input-one-rank: Rank 1 holds this run back: its input is slow" in lines
    for line in lines:
        if line.endswith(".html"):
            assert Path(line.strip()).is_file()
    assert (tmp_path / ".stallscope" / "demo").is_dir()


@pytest.mark.broad
def test_a_full_disk_is_no_defect(logs: Path) -> None:
    program = [sys.executable, "-m", "stallscope", "report", "slow"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program, cwd=logs, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "stallscope: the output cannot be written: No space left on device\n"


def test_version_and_help_are_printed(stallscope: Command, tmp_path: Path) -> None:
    assert in_a_separate_process("--version", cwd=tmp_path).stdout.startswith("stallscope ")
    listed = stallscope("--help", cwd=tmp_path).stdout
    for command in ("report", "dashboard", "collect", "demo"):
        assert command in listed
        assert stallscope(command, "--help", cwd=tmp_path).returncode == 0
