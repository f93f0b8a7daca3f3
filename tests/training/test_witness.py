"""The ledger agrees with the Horovod Timeline, an independent witness, step by step."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from support.benchmarks import benchmark
from training.launching import launch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRAIN = str(BENCHMARKS / "witness_training.py")
STEPS = 80
SLOW_MS = 15.0


@pytest.fixture(scope="module")
def witness() -> ModuleType:
    """Return the module that compares the two records."""
    return benchmark("witness_comparison")


@pytest.mark.horovod
@pytest.mark.parametrize(
    "fault", [pytest.param("none", marks=pytest.mark.variant), "slow-compute-rank"]
)
def test_ledger_and_timeline_agree_step_by_step(
    training_side: None, tmp_path: Path, witness: ModuleType, fault: str
) -> None:
    """
    GIVEN two ranks that train with the callback and the Timeline on
    WHEN every step's wait and allreduce on rank 0 is compared with the timeline's intervals
    THEN each step has its own, and both say the same of it
    """
    words = (TRAIN, str(tmp_path), "--fault", fault, "--steps", str(STEPS))
    launch(tmp_path / "printed.txt", *words, ranks=2).succeed()
    comparison = witness.compare(tmp_path)

    assert comparison.matched == 1.0
    assert comparison.gradients == 8
    assert len(comparison.ours) == STEPS - witness.SKIPPED
    # Both anchors align the two clocks to within the time of reading a clock.
    assert abs(comparison.clocks.correction_ms) < 1.0
    # The additional parts of ours add up to the nanosecond, and are never negative.
    parts = comparison.exposed + comparison.lead + comparison.gaps + comparison.tail
    np.testing.assert_allclose(comparison.ours, parts, atol=1e-6)
    assert min(part.min() for part in (comparison.exposed, comparison.lead, comparison.gaps)) >= 0.0
    assert comparison.tail.min() > -witness.RESOLUTION_NS / 1e6

    # On busy cores some steps have a long lead, which the exposed union lacks; the median step has none.
    for measure in ("exposed", "span"):
        agreement = comparison.agreement(measure)
        assert abs(agreement.difference_ms) < close_to(agreement.ours_ms)
    assert comparison.agreement("span").correlation > 0.8
    if fault == "slow-compute-rank":
        exposed = comparison.agreement("exposed")
        assert exposed.correlation > 0.8
        assert abs(exposed.ours_ms - exposed.theirs_ms) < close_to(exposed.ours_ms)
        # Both see rank 0 wait for rank 1.
        assert min(exposed.ours_ms, exposed.theirs_ms) > 0.5 * SLOW_MS


def close_to(ms: float) -> float:
    """Return by how many milliseconds two figures of this size may differ."""
    return max(2.0, 0.25 * ms)


def test_fused_intervals_count_once_and_only_after_the_start(witness: ModuleType) -> None:
    begin = np.array([[10, 10, 30, 60], [5, 6, 7, 8]])
    end = np.array([[20, 20, 50, 70], [9, 9, 9, 9]])
    length, first, last = witness.union(begin, end, np.array([0, 0]))
    assert (length.tolist(), first.tolist(), last.tolist()) == ([40, 4], [10, 5], [70, 9])
    length, first, last = witness.union(begin, end, np.array([40, 20]))
    assert (length.tolist(), first.tolist(), last.tolist()) == ([20, 0], [40, 20], [70, 20])
