"""Faults on real ranks come out with the right cause and rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from training.launching import Launch

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

pytestmark = pytest.mark.horovod

TRAIN = "../../tools/samples/train.py"
PATIENCE_SECONDS = 240.0
# Several times the step without it: on a busy machine, what two ranks lose to each other by sharing its
# cores is as long as a step, and would rightly be what holds the run back.
FAULT_MS = "150"

Starter = Callable[..., Launch]


def trained(start: Starter, logs: Path, fault: str, *options: str) -> Analysis:
    """Train 80 steps of the sample network on two ranks, and take the run apart."""
    words = [str(logs), "--epochs", "2", "--steps-per-epoch", "40"]
    words += ["--fault", fault, "--fault-ms", FAULT_MS, *options]
    start(TRAIN, *words, ranks=2).succeed(PATIENCE_SECONDS)
    (run,) = read(str(logs))
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
def test_a_slow_rank_is_named_with_its_cause(
    start: Starter, tmp_path: Path, fault: str, cause: str, rank: int
) -> None:
    verdict = trained(start, tmp_path / "logs", fault).bottleneck
    assert (verdict.kind, verdict.cause, verdict.ranks) == ("imbalance", cause, (rank,))


def test_slow_input_on_all_ranks_is_input(start: Starter, tmp_path: Path) -> None:
    # Real batches take different times. With sleeps of one length, one rank's queue may stay a batch
    # ahead for the whole run, and then no log shows that its loader is as slow as the other's.
    options = ("--loader-spread", "0.5", "--prefetch", "1")
    verdict = trained(start, tmp_path / "logs", "slow-input-all-ranks", *options).bottleneck
    assert (verdict.kind, verdict.ranks) == ("input", ())
