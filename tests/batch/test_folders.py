"""A folder is all of its runs, however its jobs' logs lie in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.epoch_logs import EpochJob, write_log_callback
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

from stallscope.batch.units import units_of
from stallscope.cli.main import main
from stallscope.collector.run_names import RunAddress

JOB = Job(ranks=2, steps=40, facts={"launch": "job 7"})
HOUR_NS = 3_600 * 1_000_000_000


def on_own_disks(folder: Path, job: Job, names: tuple[str, str] = ("h1", "h2")) -> None:
    """Write a job's logs like two hosts without a shared folder: each has another run id."""
    for path, name in zip(write_job(folder / "all", job), names, strict=True):
        text = path.read_text().replace(f'"{job.run_id}"', f'"{job.run_id}-{name}"')
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{job.run_id}.{path.name}").write_text(text)
        path.unlink()
    (folder / "all").rmdir()


def later(folder: Path, ns: int) -> None:
    """Move the logs in a folder to a later start, on both clocks of their hosts."""
    for path in folder.iterdir():
        text = path.read_text()
        for clock in ("wall_ns", "monotonic_ns"):
            _, _, rest = text.partition(f'"{clock}":')
            began = rest[: len(rest) - len(rest.lstrip("0123456789"))]
            text = text.replace(f'"{clock}":{began}', f'"{clock}":{int(began) + ns}', 1)
        path.write_text(text)


def places(folder: Path) -> list[str]:
    return [unit.where for unit in units_of(RunAddress(str(folder)))]


def reported(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    """Return the ids of the runs that ``report`` writes as JSON."""
    capsys.readouterr()
    assert main(["report", *map(str, words), "--format", "json"]) == 0
    return [document["run"]["id"] for document in json.loads(capsys.readouterr().out)]


def test_hosts_without_a_shared_folder_are_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_own_disks(tmp_path, JOB)
    assert places(tmp_path) == [str(tmp_path)]
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "steady steps of 2 ranks" in shown
    assert shown.count("╭") == 1


def test_jobs_of_hosts_without_a_shared_folder_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_own_disks(tmp_path, JOB)
    on_own_disks(tmp_path, replace(JOB, run_id="run-b", facts={"launch": "job 8"}))
    assert set(reported(capsys, tmp_path)) == {"run-a-h1", "run-b-h1"}


def test_jobs_in_folders_of_their_own_are_read_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run-a", "run-b"):
        write_job(tmp_path / name, replace(JOB, run_id=name, facts={}))
    later(tmp_path / "run-b", HOUR_NS)
    for name in ("README.md", "train.py", "run-a/notes.txt"):
        (tmp_path / name).write_text("two jobs")
    assert places(tmp_path) == [str(tmp_path / "run-b"), str(tmp_path / "run-a")]
    assert reported(capsys, tmp_path) == ["run-b", "run-a"]


@pytest.mark.parametrize("packed", [True, False])
def test_no_log_next_to_the_folders_of_jobs_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    for name in ("run-a", "run-b", "run-c"):
        write_job(tmp_path / name, replace(JOB, run_id=name, facts={}))
    if packed:
        shutil.make_archive(str(tmp_path / "old"), "gztar", tmp_path / "run-c")
    else:
        for log in (tmp_path / "run-c").iterdir():
            log.rename(tmp_path / log.name)
    shutil.rmtree(tmp_path / "run-c")
    assert set(reported(capsys, tmp_path)) == {"run-a", "run-b", "run-c"}


def test_logs_of_epochs_in_a_folder_are_a_run_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "logs"
    for ranks in (1, 2, 4):
        write_log_callback(logs, EpochJob(ranks, epoch_s=100 / ranks))
    first = reported(capsys, logs)
    assert len(first) == 3
    assert [run for name in first for run in reported(capsys, f"{logs}#{name}")] == first
    assert main(["report", str(logs), "--format", "md"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["report", str(logs), "--format", "md"]) == 0
    assert "3 of 3 already exist" in capsys.readouterr().err


def test_a_job_that_resumed_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, logs = (tmp_path / name for name in ("first", "second", "logs"))
    write_job(first, replace(JOB, facts={}))
    write_job(second, replace(JOB, facts={}, run_id="run-b", first_step=40))
    later(second, HOUR_NS)
    logs.mkdir()
    for folder in (first, second):
        for path in folder.iterdir():
            path.rename(logs / f"{folder.name}-{path.name}")
    assert reported(capsys, logs) == ["run-a"]
    assert main(["report", str(logs)]) == 0
    assert capsys.readouterr().out.count("╭") == 1


def test_a_gate_is_about_every_run_of_a_folder_and_names_those_that_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("run-a", "run-b", "run-c")):
        facts = {"run_name": "nightly"}
        job = replace(JOB, run_id=name, compute_ms=10.0 + 30.0 * (number < 2), facts=facts)
        write_job(tmp_path / "logs" / name, job)
        later(tmp_path / "logs" / name, number * HOUR_NS)
    for folder in ("logs", "flat"):
        gate = ["report", folder, "--format", "json", "--fail-if", "step_ms>35ms"]
        assert main(gate) == 1
        failed = capsys.readouterr().err.splitlines()
        assert ["#run-a" in failed[1], "#run-b" in failed[0], len(failed)] == [True, True, 2]
        if folder == "logs":
            (tmp_path / "flat").mkdir()
            for log in (tmp_path / "logs").glob("*/*.csv"):
                log.rename(tmp_path / "flat" / f"{log.parent.name}.{log.name}")


@pytest.mark.parametrize("chosen", ["base", "base#run-a"])
def test_a_baseline_is_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chosen: str
) -> None:
    for name in ("run-a", "run-b"):
        for path in write_job(tmp_path / name, replace(JOB, run_id=name, facts={})):
            (tmp_path / "base").mkdir(exist_ok=True)
            path.rename(tmp_path / "base" / f"{name}.{path.name}")
    write_job(tmp_path / "run", replace(JOB, run_id="run", facts={}))
    status = main(["report", str(tmp_path / "run"), "--baseline", str(tmp_path / chosen)])
    error = capsys.readouterr().err
    assert status == (0 if "#" in chosen else 2)
    assert ("base: there are 2 runs here; name one: " in error) == (status == 2)


def test_a_gate_on_a_baseline_needs_no_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path / "logs" / "run", replace(JOB, run_id="run", facts={}))
    base = replace(JOB, run_id="base", facts={"synthetic": True})
    write_job(tmp_path / "logs" / "base", base)
    gate = ["--format", "json", "--fail-if", "input.excess>20%"]
    assert main(["report", str(tmp_path / "logs"), *gate]) == 0
    assert capsys.readouterr().err == ""
    # Alone it is no baseline of a run.
    assert main(["report", str(tmp_path / "logs" / "base"), *gate]) == 3
    assert "is undecided in base" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "logs"), *gate, "--fail-if", "size>1"]) == 1
    assert {"base: size", "run: size"} <= {
        line.partition(" held in ")[2].partition(" is ")[0]
        for line in capsys.readouterr().err.splitlines()
    }


def as_user(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user whom permissions bind; they do not bind root."""
    command = [sys.executable, "-m", "stallscope", *map(str, words)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything, and setpriv of util-linux is missing")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    # A command that opens a pipe would wait forever.
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.fixture
def two_jobs(tmp_path: Path) -> Path:
    """Write two jobs, with a pipe named like a log and a folder that nobody may enter."""
    logs = tmp_path / "logs"
    for name in ("run-a", "run-b", "closed"):
        write_job(logs / name, replace(JOB, run_id=name, facts={}))
    os.mkfifo(logs / "run-b" / "rank-00009.0.0.steps.csv")
    (logs / "closed").chmod(0)
    return logs


PIPE = "rank-00009.0.0.steps.csv: cannot be read: this is a pipe, not a file"
CLOSED = "closed/: cannot be read: Permission denied"


@pytest.mark.broad
def test_what_cannot_be_read_is_named_and_the_other_runs_are_reported(two_jobs: Path) -> None:
    done = as_user("report", two_jobs)
    assert done.returncode == 0
    assert "run-a" in done.stdout
    assert "run-b" in done.stdout
    assert done.stderr.splitlines() == [
        f"stallscope: warning: {two_jobs}/{CLOSED}; left out",
        f"stallscope: warning: {two_jobs}/run-b/{PIPE}; left out",
    ]


@pytest.mark.broad
def test_what_cannot_be_read_is_named_when_runs_are_inspected_and_collected(two_jobs: Path) -> None:
    store = two_jobs.parent / "store"
    done = as_user("inspect", two_jobs)
    assert done.returncode == 0
    assert "Permission denied: closed/" in done.stdout
    assert "this is a pipe, not a file: run-b/rank-00009" in done.stdout
    done = as_user("collect", two_jobs, "--to", store)
    assert done.returncode == 0
    assert done.stdout.count(": collected, 2 of 2 ranks") == 2
    assert CLOSED in done.stderr
    assert PIPE in done.stderr
    (store / "run-a").chmod(0)
    done = as_user("report", store)
    assert done.returncode == 0
    assert f"{store}/run-a: cannot be read: Permission denied; left out" in done.stderr
    assert "run-b" in done.stdout


@pytest.mark.broad
def test_a_folder_that_nobody_may_enter_is_an_error_of_its_own(two_jobs: Path) -> None:
    for command in ("report", "inspect", "summary", "watch"):
        done = as_user(command, two_jobs / "closed")
        expected = f"stallscope: {two_jobs}/closed: cannot be opened: Permission denied\n"
        assert (done.returncode, done.stderr) == (2, expected), command


EPOCHS = "".join(f"Epoch {epoch}/3\n78/78 - 17s - 218ms/step - loss: 1.9\n" for epoch in (1, 2, 3))
ALONE = "knows how long epochs took; left alone, as logs of steps are here"


def printed(path: Path) -> Path:
    """Write the output of a training that knows its epochs only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(EPOCHS)
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Write two jobs with logs of steps, and a third one with its output only."""
    folder = tmp_path / "mixed"
    for name in ("run-a", "run-b"):
        write_job(folder / name, replace(JOB, run_id=name, facts={}))
    printed(folder / "printed" / "train.log")
    return folder


def test_a_run_of_epochs_in_a_folder_of_its_own_is_a_run_for_every_command(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    third = "printed/train.log"
    gate = ["--format", "json", "--out", str(mixed.parent / "out"), "--fail-if", "step_ms>1s"]
    # A gate does not pass without its figures.
    assert main(["report", str(mixed), *gate]) == 3
    assert f"is undecided in {third}" in capsys.readouterr().err
    for command in (["report"], ["compare"], ["watch", "--once"], ["inspect"]):
        main([*command, str(mixed)])
        shown = capsys.readouterr()
        assert third in shown.out, command
        assert ALONE not in shown.out + shown.err, command


@pytest.mark.parametrize(
    "place",
    ["train.log", "steps/train.log", "tensorboard/train/train.log", "stdout/train.log"],
)
def test_a_printed_log_next_to_a_jobs_logs_of_steps_is_named_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    logs = tmp_path / "logs"
    for name in ("run-a", "run-b"):
        write_job(logs / name / "steps", replace(JOB, run_id=name, facts={}))
    left = printed(logs / "run-a" / place)
    warning = f"stallscope: warning: {left}: {ALONE}"
    for command in ("report", "compare", "scaling", "watch --once"):
        main([*command.split(), str(logs)])
        assert capsys.readouterr().err.splitlines().count(warning) == 1, command
    out = str(tmp_path / "out.csv")
    assert main(["export", str(logs / "run-a"), "--format", "csv", "--out", out]) == 0
    assert capsys.readouterr().err.splitlines() == [warning]


def test_a_damaged_log_of_a_run_of_its_own_is_named_by_every_command(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = mixed / "run-c" / "rank-00000.0.0.steps.csv"
    empty.parent.mkdir()
    empty.touch()
    warning = f"stallscope: warning: {empty}: an empty step log; left out"
    for command in ("report", "compare", "scaling", "watch --once"):
        main([*command.split(), str(mixed)])
        assert warning in capsys.readouterr().err.splitlines(), command


@pytest.mark.broad
def test_a_folder_that_nobody_may_enter_is_named_by_every_command(two_jobs: Path) -> None:
    store = two_jobs.parent / "store"
    assert as_user("collect", two_jobs, "--to", store).returncode == 0
    shutil.copytree(store / "run-a", store / "run-c")
    (store / "run-c").chmod(0)
    closed_run = f"stallscope: warning: {store}/run-c: cannot be read: Permission denied; left out"
    closed = f"stallscope: warning: {two_jobs}/{CLOSED}; left out"
    for place, warning in ((two_jobs, closed), (store, closed_run)):
        for command in ("report", "compare", "scaling", "watch --once"):
            form = [] if command.startswith("watch") else ["--format", "json"]
            done = as_user(*command.split(), place, *form)
            assert done.stderr.splitlines().count(warning) == 1, (command, done.stderr)
            if command in ("compare", "scaling"):
                assert warning.endswith(json.loads(done.stdout)["warnings"][0]), command


@pytest.mark.broad
def test_a_closed_folder_next_to_a_run_is_named_wherever_the_run_is_the_only_one(
    tmp_path: Path,
) -> None:
    place, steps = tmp_path / "job", tmp_path / "steps"
    write_job(steps, JOB)
    write_job(place, replace(JOB, run_id="run-b", facts={}))
    (place / "closed").mkdir()
    (place / "closed.log").touch()
    for closed in ("closed", "closed.log"):
        (place / closed).chmod(0)
    warnings = [
        f"stallscope: warning: {place}/{closed}: cannot be read: Permission denied; left out"
        for closed in ("closed/", "closed.log")
    ]
    for command in (
        f"summary {place}",
        f"tune {place}",
        f"compare {steps} {place}",
        f"compare {steps} {steps} --baseline {place}",
        f"compare {steps} {place} --baseline {place}",
        f"scaling {place}",
        f"watch --once {place} --when step_ms.mean>1 --baseline {place}",
        f"watch --once {steps} --when step_ms.mean>1 --baseline {place}",
        f"report {steps} --baseline {place}",
        f"report {steps} {place} --baseline {place}",
        f"export {place} --format csv --out {tmp_path}/steps.csv",
    ):
        printed = [
            line for line in as_user(*command.split()).stderr.splitlines() if place.name in line
        ]
        assert sorted(set(printed)) == sorted(warnings), command
        assert len(printed) == len(warnings), command


@pytest.mark.broad
def test_step_logs_that_nobody_may_read_are_not_called_torn(tmp_path: Path) -> None:
    for path in write_job(tmp_path / "job", JOB):
        path.chmod(0)
    done = as_user("report", tmp_path / "job")
    names = "rank-00000.0.0.steps.csv and rank-00001.0.0.steps.csv"
    assert (done.returncode, done.stderr) == (
        2,
        f"stallscope: {tmp_path / 'job'}: none of 2 step logs can be read: Permission denied: {names}\n",
    )


@pytest.mark.broad
def test_what_is_closed_next_to_an_autotune_log_is_named(tmp_path: Path) -> None:
    place = tmp_path / "tuned"
    (place / "closed").mkdir(parents=True)
    real = Path(__file__).parents[1] / "cli" / "tune" / "autotune.csv"
    for name in ("autotune.csv", "closed.csv"):
        shutil.copy(real, place / name)
    for closed in ("closed", "closed.csv"):
        (place / closed).chmod(0)
    left_out = [
        f"{place}/{closed}: cannot be read: Permission denied; left out"
        for closed in ("closed/", "closed.csv")
    ]
    done = as_user("tune", place, "--format", "json")
    assert done.returncode == 0
    assert sorted(json.loads(done.stdout)["warnings"]) == sorted(left_out)
    assert sorted(done.stderr.splitlines()) == sorted(
        f"stallscope: warning: {warning}" for warning in left_out
    )
