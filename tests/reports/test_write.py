"""Reports as files: safe names, nothing overwritten without a request, nothing half written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.reports import rendered

from stallscope.analysis import Analysis
from stallscope.errors import UsageError, WouldOverwriteError
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.write import write_reports
from stallscope.run import Log, Run


@pytest.fixture
def analysis(case: Callable[[str], Analysis]) -> Analysis:
    return case("two ranks")


def called(analysis: Analysis, name: str, run_id: str = "0123") -> Analysis:
    """Return the same run under another name."""

    def renamed(log: Log) -> Log:
        return replace(log, facts={**log.facts, "run_name": name})

    run = analysis.run
    logs = tuple(map(renamed, run.logs))
    return replace(
        analysis,
        run=Run(run_id, run.source, logs, run.steps, run.intervals, run.problems),
    )


def test_every_run_is_written_in_every_format(
    analysis: Analysis, tmp_path: Path, options: ReportOptions
) -> None:
    out = tmp_path / "deep" / "reports"
    paths = write_reports([analysis], ["html", "csv"], out, options=options)
    assert paths == [out / "run-a.html", out / "run-a.csv"]
    assert paths[1].read_bytes() == rendered("csv", analysis, options).encode()
    assert sorted(path.name for path in out.iterdir()) == ["run-a.csv", "run-a.html"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../../etc/passwd", "etc-passwd.csv"),
        ("/abs/olute", "abs-olute.csv"),
        (".hidden", "hidden.csv"),
        ("..", "unnamed.csv"),
        ("a b\nc\x00d", "a-b-c-d.csv"),
        ("C:\\x", "C-x.csv"),
        ("résumé", "r-sum.csv"),
        ("-rf", "rf.csv"),
    ],
)
def test_a_run_name_is_never_a_path(
    analysis: Analysis, tmp_path: Path, name: str, file: str
) -> None:
    out = tmp_path / "out"
    (path,) = write_reports([called(analysis, name)], ["csv"], out)
    assert path == out / file
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [path]


def test_runs_of_one_name_get_their_ids(analysis: Analysis, tmp_path: Path) -> None:
    runs = [called(analysis, "resnet", "aa"), called(analysis, "ResNet", "bb")]
    paths = write_reports([*runs, called(analysis, "other")], ["csv"], tmp_path)
    assert [path.name for path in paths] == ["resnet-aa.csv", "ResNet-bb.csv", "other.csv"]


def test_a_run_given_twice_is_written_twice(analysis: Analysis, tmp_path: Path) -> None:
    same = called(analysis, "resnet", "aa")
    paths = write_reports([same, same], ["csv"], tmp_path)
    assert [path.name for path in paths] == ["resnet-aa.csv", "resnet-aa-2.csv"]


def test_nothing_is_written_if_anything_would_be_overwritten(
    analysis: Analysis, tmp_path: Path
) -> None:
    (tmp_path / "second.csv").write_text("mine")
    runs = [called(analysis, "first"), called(analysis, "second")]
    with pytest.raises(WouldOverwriteError, match=r"second\.csv already exists: add --force"):
        write_reports(runs, ["csv"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["second.csv"]
    assert (tmp_path / "second.csv").read_text() == "mine"


def test_a_dangling_link_counts_as_existing(analysis: Analysis, tmp_path: Path) -> None:
    (tmp_path / "run-a.csv").symlink_to(tmp_path / "nowhere")
    with pytest.raises(WouldOverwriteError):
        write_reports([analysis], ["csv"], tmp_path)


def test_force_replaces_the_file_and_follows_no_link(analysis: Analysis, tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    (tmp_path / "run-a.csv").symlink_to(kept)
    write_reports([analysis], ["csv"], tmp_path, force=True)
    assert kept.read_text() == "mine"
    assert (tmp_path / "run-a.csv").read_text().startswith("run_id,")


def test_a_failed_report_leaves_the_old_one(
    analysis: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run-a.csv").write_text("mine")

    def fail(source: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UsageError, match="No space left on device"):
        write_reports([analysis], ["csv"], tmp_path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run-a.csv"]
    assert (tmp_path / "run-a.csv").read_text() == "mine"


def test_reports_are_readable_as_other_new_files_are(analysis: Analysis, tmp_path: Path) -> None:
    (path,) = write_reports([analysis], ["csv"], tmp_path)
    new_file = tmp_path / "own"
    new_file.touch()
    assert path.stat().st_mode == new_file.stat().st_mode


def test_a_folder_that_is_a_file_is_named(analysis: Analysis, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match=r"out: reports cannot be written here .*--out"):
        write_reports([analysis], ["csv"], tmp_path / "out")


def test_an_unknown_format_writes_nothing(analysis: Analysis, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are html, md, json, csv"):
        write_reports([analysis], ["csv", "pdf"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
