"""Further options of ``stallscope report``: conditions, job summaries, and a file with options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.cli.main import main

JOB = Job(ranks=2, steps=100)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_job(tmp_path / "slow", replace(JOB, run_id="slow", slow={(1, "compute"): 20.0}))
    write_job(tmp_path / "fine", replace(JOB, run_id="fine"))
    write_job(tmp_path / "blind", replace(JOB, run_id="blind", stamps=False))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_condition_that_holds_ends_with_status_1(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "slow", "fine", "--format", "json", "--fail-if", "imbalance.share>20%"]
    assert main(words) == 1
    errors = capsys.readouterr().err
    assert "--fail-if held in slow: " in errors
    assert "in fine" not in errors
    assert main(["report", "fine", "--fail-if", "imbalance.share>20%", "--format", "json"]) == 0


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("imbalance.share>20%", "the stages of the steps were not measured"),
        ("gap>10%", "there is no baseline; --baseline names one"),
        ("what_if.rank:9.speedup>1.1", "the run has no log of rank 9"),
        ("bottleneck.why=throttled", "the logs have no counters of the machine"),
    ],
)
def test_a_gate_whose_figure_is_missing_ends_with_status_3(
    logs: Path, capsys: pytest.CaptureFixture[str], condition: str, why: str
) -> None:
    run = "blind" if condition.startswith("imbalance") else "fine"
    assert main(["report", run, "--fail-if", condition, "--format", "json"]) == 3
    error = capsys.readouterr().err
    assert f"--fail-if is undecided in {run}: " in error
    assert why in error


def test_a_condition_that_holds_outranks_a_missing_figure(logs: Path) -> None:
    words = ["--fail-if", "imbalance.share>20%", "--fail-if", "gap>10%", "--format", "json"]
    assert main(["report", "slow", *words]) == 1


def test_a_condition_is_checked_for_existing_reports_too(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "slow", "fine", "--format", "md", "--fail-if", "imbalance.share>20%"]
    assert main(words) == 1
    capsys.readouterr()
    assert main(words) == 1
    errors = capsys.readouterr().err
    assert "2 of 2 already exist" in errors
    assert "--fail-if held in slow" in errors


def test_an_unreadable_run_outranks_a_condition(logs: Path) -> None:
    words = ["slow", "nowhere", "--fail-if", "imbalance.share>20%", "--format", "json"]
    assert main(["report", *words]) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--fail-if", "nonsense"], "stallscope: --fail-if: "),
        (["--jobs", "0"], "--jobs 0: give a number of processes, for example 4"),
        (["--jobs", "many"], "--jobs many: give a number of processes"),
        (["--since", "soon"], "--since soon: give a date such as 2026-11-01"),
        (["--github-summary"], "GITHUB_STEP_SUMMARY is not set"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(
    words: list[str],
    sentence: str,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert main(["report", "nowhere", *words]) == 2
    errors = capsys.readouterr().err
    assert sentence in errors
    assert errors.count("\n") == 1


def test_a_job_summary_is_appended_to(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = logs / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["report", "slow", "--github-summary", "--format", "json"]) == 0
    assert main(["report", "slow", "fine", "nowhere", "--github-summary", "--format", "json"]) == 2
    text = summary.read_text()
    assert text.startswith("before\n## Rank 1 holds this run back")
    assert "rank time could be saved in 2 runs" in text
    assert "- nowhere: no such file or folder" in text


def test_options_come_from_a_file_which_is_named(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "stallscope.toml").write_text(
        '[report]\nformat = ["md", "json"]\nout = "nightly"\njobs = 1\nanonymous = true\n'
        'fail-if = ["imbalance.share>20%", "imbalance.share>90%"]\n'
    )
    assert main(["report", "slow"]) == 1
    errors = capsys.readouterr().err
    assert "from [report] of stallscope.toml: format = md,json, out = nightly, jobs = 1" in errors
    assert sorted(path.name for path in (logs / "nightly").iterdir()) == ["slow.json", "slow.md"]


def test_the_command_line_wins(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / "pyproject.toml").write_text(
        '[tool.stallscope.report]\nformat = "md"\nout = "nightly"\nwhat-if = ["bandwidth:2"]\n'
    )
    assert main(["report", "slow", "--format", "csv", "--what-if", "bandwidth:8"]) == 0
    errors = capsys.readouterr().err
    assert "from [tool.stallscope.report] of pyproject.toml: out = nightly\n" in errors
    assert [path.name for path in (logs / "nightly").iterdir()] == ["slow.csv"]


def test_stallscope_toml_overrides_pyproject_toml(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "pyproject.toml").write_text('[tool.stallscope.report]\nformat = "md"\n')
    (logs / "stallscope.toml").write_text('[report]\nformat = "csv"\n')
    assert main(["report", "slow"]) == 0
    assert [path.name for path in (logs / "reports").iterdir()] == ["slow.csv"]


def test_runs_may_be_named_around_options(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / "stallscope.toml").write_text("[report]\njobs = 1\n")
    assert main(["report", "slow", "--format", "json", "fine"]) == 0
    assert '"id": "fine"' in capsys.readouterr().out
    assert main(["compare", "slow", "--format", "json", "fine"]) == 0
    assert '"pair": {' in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["compare", "--format", "json"])
    assert "the following arguments are required: RUN" in capsys.readouterr().err


def test_a_typo_in_pyproject_toml_is_an_error_too(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "pyproject.toml").write_text("[tool.stallscope.reprot]\n")
    assert main(["report", "slow"]) == 2
    assert "pyproject.toml: there is no table tool.stallscope.reprot; did you mean report?" in (
        capsys.readouterr().err
    )


def test_other_commands_read_no_file(logs: Path) -> None:
    (logs / "stallscope.toml").write_text("no TOML at all")
    assert main(["scaling", "slow"]) == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[report]\nfromat = 'md'", "there is no option fromat; did you mean format?"),
        ("[report]\nruns = 'x'", "there is no option runs; did you mean "),
        ("[report]\nhelp = true", "there is no option help; did you mean "),
        ("[report]\nforce = 'yes'", "[report] of stallscope.toml: force must be true or false"),
        ("[report]\nformat = true", "format must be a string, a number, or a list of those"),
        ("[report]\nout = {a = 1}", "out must be a string, a number, or a list of those"),
        ("[reports]", "stallscope.toml: there is no table reports; did you mean report?"),
        ("format = 'md'", "stallscope.toml: there is no table format; did you mean report?"),
        ("report = 3", "stallscope.toml: [report] must be a table of options"),
        ("[report", "stallscope.toml: cannot be read: "),
    ],
)
def test_mistakes_in_the_file_are_sentences(
    text: str, sentence: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "stallscope.toml").write_text(text)
    assert main(["report", "slow"]) == 2
    errors = capsys.readouterr().err
    assert sentence in errors
    assert errors.count("\n") == 1
