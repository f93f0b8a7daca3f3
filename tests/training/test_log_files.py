"""Ranks print records that equal their step log, gather their logs, and sample steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.recorded import TIMESTAMPS, Recorded, check_gathered, check_sampled

from stallscope.parsers import read
from stallscope.run import Run

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


@pytest.fixture(scope="module")
def printed(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Return the runs in horovodrun's output of both ranks, with its labels."""
    path = tmp_path_factory.mktemp("printed") / "stderr"
    path.write_text(recorded.output)
    return read(str(path))


def test_printed_records_equal_the_file(recorded: Recorded, printed: list[Run]) -> None:
    (written,) = read(str(recorded.out / "file_and_records" / "logs"))
    (same,) = [run for run in printed if run.id == written.id]
    assert same.steps.num_rows == 24
    assert same.steps.equals(written.steps)
    assert same.intervals.equals(written.intervals)
    assert [log.facts for log in same.logs] == [log.facts for log in written.logs]


def test_ranks_without_a_folder_are_one_run_with_all_stages(
    recorded: Recorded, printed: list[Run]
) -> None:
    (run,) = [run for run in printed if run.name == "no folder"]
    assert run.ranks == [0, 1]
    assert run.status == "completed"
    assert run.steps.num_rows == 24
    assert all(run.steps[name].null_count == 0 for name in TIMESTAMPS)
    assert not list(Path(recorded.out / "only_records").glob("**/*.csv"))


def test_ranks_without_a_shared_folder_gather_their_logs(recorded: Recorded) -> None:
    check_gathered(recorded)


def test_sampled_steps_are_recorded_in_several_files(recorded: Recorded) -> None:
    check_sampled(recorded, steps=320)
