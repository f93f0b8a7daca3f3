"""DeepSpeed's ZeRO on two CPU ranks: a step has its input, and one time for everything else."""

from __future__ import annotations

import pytest
from training.environments import DEEPSPEED, needs
from training.recorded import Recorded, check_steps, record_cases

from stallscope.analysis import analyse

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

STEPS = 60


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two ranks."""
    needs(DEEPSPEED)
    words = ("two_ranks.py", "deepspeed_cases.py")
    folder = tmp_path_factory.mktemp("deepspeed")
    return record_cases(folder, *words, environment=DEEPSPEED)


@pytest.mark.parametrize(
    ("case", "updates"),
    [("zero_1", 60), ("zero_2", 60), ("zero_3", 60), ("zero_2_accumulates", 20)],
)
def test_each_iteration_is_a_step_with_its_input(ranks: Recorded, case: str, updates: int) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, STEPS, timestamps=("data",))
        assert fit.facts["gradients_reduced"] is None
        assert "DeepSpeed's engine" in fit.facts["stamps"]["reason"]
        assert fit.facts["stamps"]["input_exposed"] is True
    assert ranks.result(case)["updates"] == updates
    assert ranks.same_weights(case)
    ranks.clean(case)


@pytest.mark.parametrize("case", ["zero_1", "zero_2", "zero_3"])
def test_slow_input_is_input_of_its_rank(ranks: Recorded, case: str) -> None:
    analysis = analyse(ranks.run(case))
    other, slow = (one.input_ms for one in analysis.ranks)
    assert other is not None
    assert slow is not None
    assert slow > 40 > 20 > other
    # The other rank waits in its step, which looks like compute.
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("insufficient_data", ())
    assert "rank 1 4" in analysis.bottleneck.evidence
