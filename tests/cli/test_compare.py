"""``stallscope compare`` as a user types it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.printed_steps import written_megatron
from support.step_logs import Job, write_job

from stallscope.cli.main import main

JOB = Job(steps=60, noise=0.02)
DAY_NS = 86_400_000_000_000


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write three runs, named backwards: the oldest is called ``c``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for day, name in enumerate("cba"):
        facts = {"anchor": {"wall_ns": 10**18 + day * DAY_NS, "monotonic_ns": 10**9}}
        slower = 20.0 + 5 * day
        write_job(
            tmp_path / name,
            replace(JOB, run_id=f"run-{name}", seed=day + 1, compute_ms=slower, facts=facts),
        )
    return tmp_path


def test_two_runs_are_compared_in_the_order_given(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "a", "c"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "B's steps are" in out
    assert "shorter" in out
    assert max(map(len, out.splitlines())) <= 80


def test_three_runs_are_ordered_by_their_start(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "a", "b", "c", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    document = json.loads(out)
    assert document["pair"] is None
    (history,) = document["histories"]
    assert [run["id"] for run in history["runs"]] == ["run-c", "run-b", "run-a"]
    assert {figure["status"] for figure in history["figures"]} == {"insufficient_data"}


def test_a_store_is_all_of_its_runs(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ac":
        assert main(["collect", name, "--to", "runs"]) == 0
    capsys.readouterr()
    assert main(["compare", "runs", "--format", "json"]) == 0
    pair = json.loads(capsys.readouterr().out)["pair"]
    assert [run["id"] for run in pair["runs"]] == ["run-c", "run-a"]


def test_no_credential_of_an_existing_log_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier recorders recorded whatever had the prefix of a framework."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        recorded = {
            "TF_VAR_db_pass": f"hunter2-{name}",
            "TF_VAR_conn": f"postgres://{name}:hunter2@db/x",
            "TF_CLI_CONFIG_FILE": f"/home/hunter2/{name}",
            "HOROVOD_HOOK": f"https://{name}:hunter2@host",
            "NCCL_ALGO": "Ring" if name == "a" else "Tree",
        }
        write_job(Path(name), Job(steps=40, run_id=f"run-{name}", facts={"settings": recorded}))
    formats = ["--format", "html,md,json,csv", "--out"]
    assert main(["compare", "a", "b"]) == 0
    assert main(["report", "a"]) == 0
    assert main(["compare", "a", "b", *formats, "compared"]) == 0
    assert main(["report", "a", "b", *formats, "reported"]) == 0
    assert main(["inspect", "a"]) == 0
    assert main(["export", "a", "--format", "chrome", "--out", "a.json"]) == 0
    printed = capsys.readouterr().out
    assert "NCCL_ALGO" in printed
    files = [path for place in ("compared", "reported") for path in Path(place).iterdir()]
    assert len(files) > 8
    pages = [path.read_text() for path in files]
    assert any("TF_VAR_db_pass" in page for page in pages)
    for text in (printed, Path("a.json").read_text(), *pages):
        assert "hunter2" not in text


def test_the_same_run_twice_is_an_error(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a", "a"]) == 0
    assert "A and B are one run" in capsys.readouterr().out


def test_one_run_cannot_be_compared(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "a"]) == 2
    assert "a: one run cannot be compared; name two" in capsys.readouterr().err


def test_a_folder_is_all_of_its_runs_like_a_store(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", ".", "--format", "json"]) == 0
    printed = capsys.readouterr()
    (history,) = json.loads(printed.out)["histories"]
    assert [run["id"] for run in history["runs"]] == ["run-c", "run-b", "run-a"]
    assert printed.err == ""


def test_a_folder_beside_a_run_is_compared_over_time_with_a_note(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("both").mkdir()
    for name in "ab":
        Path(name).rename(Path("both", name))
    assert main(["compare", "both", "c"]) == 0
    printed = capsys.readouterr()
    assert "3 runs" in printed.out
    assert "these places have 3 runs, which are compared over time" in printed.err
    example = printed.err.split()[-1]
    assert main(["compare", example, "c"]) == 0
    printed = capsys.readouterr()
    assert "A step takes" in printed.out
    assert printed.err == ""


def test_unreadable_runs_are_reported_and_the_others_compared(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "a", "nowhere", "c"]) == 2
    out, err = capsys.readouterr()
    assert "B's steps are" in out
    assert "nowhere" in err
    assert main(["compare", "a", "nowhere"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "nowhere" in err
    assert "Traceback" not in err


def test_files_are_written_once_and_not_overwritten(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "a", "b", "--format", "html,md,json,csv", "--out", "out"]
    assert main(words) == 0
    written = capsys.readouterr().out.split()
    assert written == [f"out/comparison.{end}" for end in ("html", "md", "json", "csv")]
    assert all((logs / path).stat().st_size > 200 for path in written)
    # Reported before anything is read.
    assert main([*words, "nowhere"]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "out/comparison.html already exists (and 3 more): add --force" in message
    assert main([*words, "--force"]) == 0


def test_the_page_shows_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "80")
    page = (root / "docs" / "compare.md").read_text()
    command, _, shown = page.partition("    $ stallscope ")[2].partition("\n")
    assert main(command.split()) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    lines = [line.removeprefix("    ") for line in shown.split("\n\n")[0].splitlines()]
    assert len(lines) >= 3
    assert printed[: len(lines)] == lines


def test_runs_without_steps_are_an_error_of_one_sentence(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "xyz":
        write_job(logs / name, replace(JOB, steps=0, run_id=name))
    assert main(["compare", "x", "y", "z"]) == 2
    assert "none of these runs has timed steps" in capsys.readouterr().err


def test_verdicts_of_two_runs_use_a_baseline(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = replace(JOB, steps=300, compute_ms=26.0, allreduce_ms=0.5)
    write_job(logs / "slow", replace(slow, run_id="slow"))
    write_job(logs / "slower", replace(slow, run_id="slower", seed=5))
    synthetic = replace(slow, compute_ms=20.0, run_id="base", facts={"synthetic": True})
    write_job(logs / "base", synthetic)
    pairs = []
    for options in ([], ["--baseline", "base"]):
        assert main(["compare", "slow", "slower", "--format", "json", *options]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        pairs.append(json.loads(out)["pair"])
    without, held = pairs
    assert [run["bottleneck"]["kind"] for run in without["runs"]] == ["balanced"] * 2
    assert [run["bottleneck"]["kind"] for run in held["runs"]] == ["compute"] * 2
    # Differences between the runs do not concern the baseline.
    assert held["ledger"] == without["ledger"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", "b", "c", "--baseline", "a"], "there are 3: leave it out"),
        (["a", "b", "--baseline", "wide"], "a baseline on 3 ranks cannot be compared with"),
        (["a", "b", "--baseline", "gone"], "gone"),
    ],
)
def test_a_baseline_that_does_not_fit_is_refused(
    logs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    write_job(logs / "wide", replace(JOB, ranks=3, run_id="wide"))
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err
    assert len(err.splitlines()) == 1


def test_unrelated_logs_of_a_folder_are_no_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bert", "vit", "gpt"):
        written_megatron(tmp_path / f"{name}.log")
    assert main(["compare", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "these 3 runs are all of different jobs" in err
    assert "--same-job" in err


@pytest.mark.broad
@pytest.mark.parametrize(("layers", "said"), [(24, []), (None, ["--same-job"])])
def test_printed_logs_of_nights_are_a_history(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    layers: int | None,
    said: list[str],
) -> None:
    for night in range(1, 8):
        step_ms = 1600.0 + 300 * (night > 4)
        written_megatron(tmp_path / f"night-{night}.log", step_ms=step_ms, layers=layers)
    assert main(["compare", str(tmp_path), "--format", "json", *said]) == 0
    (history,) = json.loads(capsys.readouterr().out)["histories"]
    assert len(history["runs"]) == 7
    assert "longer since" in history["headline"]
