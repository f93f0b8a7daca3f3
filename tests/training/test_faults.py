"""The verdict names the cause and the rank of faults on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.launching import launch

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]


@pytest.fixture(scope="module")
def logs(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train 80 steps of the sample network on two ranks with each fault."""
    folder = tmp_path_factory.mktemp("faults")
    launched = launch(folder / "printed.txt", "faulty.py", str(folder / "logs"), ranks=2)
    launched.succeed()
    return folder / "logs"


def analysed(folder: Path) -> Analysis:
    (run,) = read(str(folder))
    assert run.steps.num_rows == 160
    return analyse(run)


@pytest.mark.parametrize(
    ("fault", "cause", "rank"),
    [
        ("slow-input-one-rank", "input", 1),
        ("slow-compute-rank", "compute", 1),
        ("busy-rank-0", "other", 0),
    ],
)
def test_a_slow_rank_is_named_with_its_cause(logs: Path, fault: str, cause: str, rank: int) -> None:
    verdict = analysed(logs / fault).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", cause, (rank,))


def test_slow_input_on_all_ranks_is_input(logs: Path) -> None:
    verdict = analysed(logs / "slow-input-all-ranks").bottleneck
    assert (verdict.kind, verdict.ranks) == ("input", ())
