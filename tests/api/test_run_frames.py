"""A run's records as DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import stallscope as ss
from stallscope.api import opened_run
from stallscope.errors import NotFoundError, UsageError

Opened = Callable[[str], ss.Run]
STAGES = ["input_ms", "compute_ms", "other_ms", "wait_ms", "allreduce_ms"]


def test_steps_are_rows_of_a_rank_and_a_step_that_add_up(opened: Opened) -> None:
    steps = opened("steps").steps
    assert steps.index.names == ["rank", "step"]
    assert steps.index.is_unique
    assert len(steps) == 3 * 240
    assert np.allclose(steps[STAGES].sum(axis=1), steps["step_ms"])
    # Rank 2 has 10 ms of input, the others 1 ms, and wait for it.
    medians = steps.groupby("rank")["input_ms"].median()
    assert medians.to_numpy() == pytest.approx([1.0, 1.0, 10.0], rel=0.1)
    assert steps.loc[2, "critical"].mean() > 0.9
    assert [*steps["host"].cat.categories] == ["alpha", "beta"]


def test_columns_ranks_and_steps_can_be_chosen(opened: Opened) -> None:
    run = opened("steps")
    part = run.steps_of(columns=["step_ms", "samples"], ranks=[0, 2], steps=range(100, 110))
    whole = run.steps.loc[([0, 2], slice(100, 109)), ["step_ms", "samples"]]
    pd.testing.assert_frame_equal(part, whole)


def test_ranks_can_be_read_one_after_the_other(opened: Opened) -> None:
    run = opened("steps")
    parts = [*run.steps_by_rank(columns=["step_ms"])]
    assert [set(part.index.get_level_values("rank")) for part in parts] == [{0}, {1}, {2}]
    pd.testing.assert_frame_equal(pd.concat(parts), run.steps[["step_ms"]])


def test_a_large_run_is_no_surprise(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened("steps")
    # Five million rows would take the memory of the test's machine.
    monkeypatch.setattr(opened_run, "MOST_ROWS", 719)
    with pytest.raises(UsageError, match=r"720 rows.*at most 719.*run\.steps_of\(columns="):
        _ = run.steps
    assert len(run.steps_of()) == 720


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"columns": ["step_mss"]}, 'did you mean "step_ms"'),
        ({"ranks": [7]}, "rank 7"),
        ({"steps": range(0, 100, 2)}, "consecutive steps"),
        ({"steps": range(5, 5)}, "consecutive steps"),
        ({"steps": range(1000, 1100)}, "the run has steps 0 to 239"),
    ],
)
def test_a_wrong_choice_is_an_error(
    opened: Opened, chosen: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        opened("steps").steps_of(**chosen)  # type: ignore[arg-type]


def test_stages_that_were_not_measured_are_missing(opened: Opened) -> None:
    steps = opened("no stages").steps
    assert steps[["input_ms", "compute_ms", "wait_ms", "allreduce_ms"]].isna().all(axis=None)
    assert steps["critical"].isna().all()
    assert steps["step_ms"].notna().sum() > 200


def test_repeated_steps_are_told_apart_by_their_generation(opened: Opened) -> None:
    steps = opened("generations").steps
    repeated = steps.loc[(0, 55)]
    assert repeated["generation"].tolist() == [0, 1]
    assert len(steps.loc[(0, slice(50, 59)), :]) == 20


def test_epochs_have_their_times_and_validation(opened: Opened) -> None:
    epochs = opened("steps").epochs
    assert epochs.index.names == ["epoch", "rank"]
    assert epochs["steps"].tolist() == [80] * 9
    assert epochs["validation_s"].to_numpy() == pytest.approx([0.05] * 9, rel=0.1)
    assert epochs["checkpoint_s"].isna().all()


def test_epochs_of_a_progress_bar_have_a_precision(opened: Opened) -> None:
    run = opened("epochs only")
    epochs = run.epochs
    assert ((epochs["epoch_s"] - 300.0).abs() <= epochs["precision_s"]).all()
    assert epochs["validation_s"].isna().all()
    assert run.steps.empty


def test_printed_lines_are_windows(opened: Opened) -> None:
    run = opened("printed lines")
    windows = run.windows
    assert windows.index.names == ["rank", "step"]
    assert windows["steps"].sum() > 300
    assert (windows["input_ms"] < windows["step_ms"]).all()
    assert run.steps.empty
    assert opened("steps").windows.empty


def test_machines_are_in_long_form(opened: Opened) -> None:
    machines = opened("machines").machines
    assert machines["value"].tolist() == [10.0, 90.0, 50.0]
    assert machines["since_begin_s"].to_numpy() == pytest.approx([0.0, 0.25, 0.5], abs=0.001)
    assert machines["unit"].tolist() == ["%"] * 3
    assert opened("steps").machines.empty


def test_a_frame_is_the_callers_own(opened: Opened) -> None:
    run = opened("steps")
    mine = run.steps
    mine["step_ms"] = 0.0
    assert run.steps["step_ms"].min() > 0


def test_a_run_describes_itself(opened: Opened) -> None:
    run = opened("steps")
    assert (run.name, run.ranks, run.hosts) == ("slow", 3, ["alpha", "beta"])
    assert repr(run) == "Run('slow': 3 ranks, 720 rows of steps)"
    assert not run.synthetic
    assert run.problems == []


def test_nothing_at_a_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        ss.open_run(tmp_path / "nowhere")
    with pytest.raises(ss.StallscopeError):
        ss.analyse(tmp_path / "nowhere")
