"""DeepSpeed's ZeRO on two CPU ranks: all stages of a step up to ZeRO's stage 2, then its input only."""

from __future__ import annotations

import pytest
from training.environments import DEEPSPEED, needs
from training.recorded import (
    TIMESTAMPS,
    Recorded,
    check_ranks_together,
    check_slow_rank,
    check_steps,
    record_cases,
)

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


BELOW = ("below_accelerate", "below_trainer")
SEEN = ("zero_0", "zero_1", "zero_1_in_16_bits", "zero_2", *BELOW)


@pytest.mark.parametrize(
    ("case", "steps", "micro"),
    [
        *((case, STEPS, 1) for case in SEEN),
        *((f"{case}_accumulates", 20, 3) for case in ("zero_2", *BELOW)),
    ],
)
def test_each_step_has_all_its_stages(ranks: Recorded, case: str, steps: int, micro: int) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, steps)
        assert fit.facts["gradients_reduced"] is True
        assert fit.facts["stamps"] == {"placed": list(TIMESTAMPS), "reason": None}
        assert set(fit.steps["micro"]) == {micro}
        assert (fit.facts["gradient_tensors"], fit.facts["parameters"]) == (4, 2372)
    assert ranks.result(case)["updates"] == steps
    assert ranks.same_weights(case)
    check_ranks_together(ranks.run(case))
    ranks.clean(case)


@pytest.mark.parametrize("case", SEEN)
def test_the_rank_with_slow_input_is_found(ranks: Recorded, case: str) -> None:
    check_slow_rank(ranks.run(case), "input", milliseconds=40)
    patient, slow = ranks.fits(case)
    assert patient.median_ms("ready", "reduced") > slow.median_ms("ready", "reduced") + 20


@pytest.mark.parametrize("case", ["zero_1", *BELOW])
def test_recording_does_not_change_the_weights(ranks: Recorded, case: str) -> None:
    for rank in (0, 1):
        assert ranks.unchanged_by_recording(case, rank)


def test_with_stage_3_a_step_has_its_input_and_names_no_rank(ranks: Recorded) -> None:
    for fit in ranks.fits("zero_3"):
        check_steps(fit, 0, STEPS, timestamps=("data",))
        assert fit.facts["gradients_reduced"] is None
        assert "ZeRO stage 3 gathers parameters" in fit.facts["stamps"]["reason"]
        assert fit.facts["stamps"]["input_exposed"] is True
    ranks.clean("zero_3")
    analysis = analyse(ranks.run("zero_3"))
    patient, slow = (rank.input_ms for rank in analysis.ranks)
    assert patient is not None
    assert slow is not None
    assert slow > 40 > 20 > patient
    # The other rank waits in its step, which looks like compute.
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("insufficient_data", ())
    assert "rank 1 4" in analysis.bottleneck.evidence
