"""Several runs as DataFrames: two compared, sizes, and the runs of a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from support.commands import collect_job
from support.step_logs import Job, write_job

import stallscope as ss
from stallscope.errors import NotFoundError, UsageError

JOB = Job(ranks=2, steps=200, slow={(1, "input"): 9.0}, facts={"loader_workers": 0})
FIXED = replace(JOB, run_id="fixed", slow={}, facts={"loader_workers": 4})


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write_job(tmp_path / "slow", JOB)
    write_job(tmp_path / "fixed", FIXED)
    return tmp_path


def test_two_runs_are_compared(logs: Path) -> None:
    slow = ss.analyse(logs / "slow")
    change = ss.compare(slow, logs / "fixed")
    assert change.first is slow
    step = change.step.loc["step"]
    assert step["by_ms"] == pytest.approx(-9.0, rel=0.1)
    assert step["by_ci_low_ms"] < step["by_ms"] < step["by_ci_high_ms"]
    assert change.by_cause["by_ms"].sum() == pytest.approx(step["by_ms"])
    assert change.ledger["by_ms"].sum() == pytest.approx(step["by_ms"])
    assert change.by_cause["more_than_noise"].to_dict()["input"]
    assert change.differences.loc["loader_workers"].tolist() == [0, 4]
    assert change.speedup == pytest.approx(step["first_ms"] / step["second_ms"])
    assert change.outcome in repr(change)
    assert [*change.figures()] == ["by_cause", "changes"]


def test_runs_without_steps_have_no_changes(tmp_path: Path, logs: Path) -> None:
    (tmp_path / "np2").mkdir()
    (tmp_path / "np2" / "stdout.txt").write_text("Epoch 1/2\n9/9 - 3s - loss: 1.0 - 3s/epoch\n" * 2)
    change = ss.compare(logs / "slow", tmp_path / "np2")
    assert change.by_cause.empty
    assert change.speedup is None
    assert change.figures() == {}


def test_a_history_has_the_night_of_the_change(tmp_path: Path) -> None:
    slower = {(rank, "compute"): 20.0 for rank in range(2)}
    for night in range(10):
        job = replace(
            JOB,
            run_id=f"night-{night}",
            slow=slower if night >= 6 else {},
            facts={"loader_workers": 4 if night < 6 else 2},
        )
        write_job(tmp_path / f"{night}", job)
    history = ss.history(tmp_path / f"{night}" for night in range(10))
    (headline,) = history.headlines
    assert headline.endswith("longer since night-6")
    points = history.points.droplevel("job")
    assert points["run_id"].tolist() == [f"night-{night}" for night in range(10)]
    step = history.changes.xs("step", level="figure").iloc[0]
    assert (step["number"], step["run_id"], step["unit"]) == (7, "night-6", "ms")
    # Without noise, the interval has no width.
    assert step["by_ci_low"] == step["by"] == step["by_ci_high"] == pytest.approx(20.0)
    assert step["after"] == pytest.approx(points["step_ms"].iloc[6:].mean())
    outcomes = history.outcomes.droplevel("job")["status"]
    assert (outcomes["step"], outcomes["input"]) == ("change", "steady")
    workers = history.differences.droplevel("job").loc[(7, "loader_workers")]
    assert workers.tolist() == [4, 2]
    assert [*history.figures()] == ["step", "compute", "by_cause"]
    assert headline in repr(history)


def test_no_runs_have_no_history() -> None:
    history = ss.history([])
    assert (history.headlines, history.figures()) == ([], {})
    assert history.points.empty
    assert "step_ms" in history.points


def test_sizes_have_efficiencies(tmp_path: Path) -> None:
    for ranks in (1, 2, 4):
        write_job(tmp_path / str(ranks), Job(ranks=ranks, steps=200, run_id=f"on-{ranks}"))
    scaling = ss.scaling(tmp_path / str(ranks) for ranks in (1, 2, 4))
    points = scaling.points
    measured = points[~points["projected"]].droplevel("series")
    assert [*measured.index] == [1, 2, 4]
    assert measured.loc[1, "efficiency"] == 1.0
    lost = measured.filter(like="lost_").sum(axis=1)
    assert lost.to_numpy() == pytest.approx(1 - measured["efficiency"].to_numpy())
    assert points.loc[pd.IndexSlice[:, 8], "projected"].all()
    assert [*scaling.figures()] == ["throughput", "efficiency", "steps"]
    assert "1, 2, 4 ranks" in repr(scaling)


def test_no_runs_do_not_scale() -> None:
    scaling = ss.scaling([])
    assert scaling.points.empty
    assert scaling.figures() == {}


@pytest.mark.broad
def test_a_folder_of_runs_is_all_of_them(logs: Path) -> None:
    for runs in (logs, [logs], [logs / "slow", str(logs / "fixed")]):
        assert ss.scaling(runs).points["runs"].tolist()[0] == 2
        assert {*ss.history(runs).points["run_id"]} == {"run-a", "fixed"}
    with pytest.raises(NotFoundError, match="there are 2 runs here; name one: "):
        ss.open_run(logs)


def test_the_runs_of_a_store_are_listed(tmp_path: Path) -> None:
    base = Job(ranks=2, steps=200, run_id="base", facts={"synthetic": True})
    for job in (replace(JOB, facts={}), base):
        collect_job(tmp_path, job)
    runs = ss.runs(tmp_path / "store", sort="step_ms")
    assert [*runs.index] == ["run-a", "base"]
    assert runs["baseline"].tolist()[0] == "base"
    assert runs.loc["run-a", "named_ranks"] == (1,)
    assert runs.loc["run-a", "input_share"] > runs.loc["base", "input_share"]
    assert str(runs["started_at"].dtype) == "datetime64[ns, UTC]"
    opened = ss.open_run(runs.loc["run-a", "path"])
    assert opened.id == "run-a"
    assert [*ss.runs(tmp_path / "store", where="synthetic=yes").index] == ["base"]


def test_a_folder_without_runs_and_an_unknown_field_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no runs were collected"):
        ss.runs(tmp_path)
    with pytest.raises(UsageError, match="modle"):
        ss.runs(tmp_path, where="modle=x")
