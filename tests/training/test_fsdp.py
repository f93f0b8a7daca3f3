"""FSDP2 on two ranks: time in collectives is waiting and communication, and not compute."""

from __future__ import annotations

import re

import pytest
from training.environments import KERAS3, needs
from training.recorded import Recorded, check_ranks_together, check_steps, fits_of, record_cases

from stallscope.analysis import analyse

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

ALL = {"placed": ["data", "ready", "reduced"], "reason": None}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of two ranks."""
    needs(KERAS3)
    folder = tmp_path_factory.mktemp("fsdp")
    words = ("two_ranks.py", "fsdp_cases.py")
    return record_cases(folder, *words, environment=KERAS3)


@pytest.mark.parametrize(
    ("case", "steps", "micro"),
    [
        ("plain", 24, 1),
        ("recomputed", 24, 1),
        ("accumulation", 8, 3),
        ("slow_input", 80, 1),
        ("slow_forward", 80, 1),
        ("slow_backward_with_accumulation", 80, 2),
    ],
)
def test_each_step_has_all_its_stages(ranks: Recorded, case: str, steps: int, micro: int) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, steps)
        assert set(fit.steps["micro"]) == {micro}
        assert set(fit.steps["samples"]) == {16 * micro}
        assert fit.facts["stamps"] == ALL
        assert fit.facts["gradients_reduced"] is True
    check_ranks_together(ranks.run(case))
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_recording_does_not_change_the_weights(ranks: Recorded) -> None:
    assert all(ranks.unchanged_by_recording("plain", rank) for rank in range(2))


def test_facts_of_the_sharded_model(ranks: Recorded) -> None:
    for fit in ranks.fits("plain"):
        facts = fit.facts
        assert facts["parameters"] == 3 * (64 * 64 + 64) + 64 * 4 + 4
        assert facts["gradient_tensors"] == 8
        # FSDP reduces gradients in parts of other sizes.
        assert (facts["gradient_bytes"], facts["gradient_sizes"]) == (None, None)
        assert facts["reduces_with"] == ["gloo"]
        assert (facts["sharding"], facts["compression"]) == (
            {"reshard_after_forward": True},
            "none",
        )


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        ("slow_input", "input"),
        ("slow_forward", "compute"),
        ("slow_backward_with_accumulation", "compute"),
    ],
)
def test_the_slow_rank_is_found(ranks: Recorded, case: str, cause: str) -> None:
    run = ranks.run(case)
    start, end = ("data", "ready") if cause == "compute" else ("begin", "data")
    assert fits_of(run)[1].median_ms(start, end) > 40
    analysis = analyse(run)
    # On busy cores the collectives of all blocks may cost more than the slow rank.
    [straggler] = [straggler for straggler in analysis.stragglers if straggler.ranks]
    assert (straggler.pattern, straggler.stage, straggler.ranks) == ("persistent", cause, (1,))
    by_cause = {entry.name: entry.ms for entry in analysis.by_cause}
    assert by_cause[cause] > 40
    assert by_cause["compute" if cause == "input" else "input"] < 40


@pytest.mark.parametrize("case", ["slow_forward", "slow_backward_with_accumulation"])
def test_waiting_for_a_slow_rank_is_not_compute(ranks: Recorded, case: str) -> None:
    """The other rank waits in the collectives of all blocks after the slow one."""
    patient, slow = ranks.fits(case)
    assert patient.median_ms("data", "ready") < slow.median_ms("data", "ready") / 2
    assert patient.median_ms("ready", "reduced") > slow.median_ms("data", "ready") / 2


@pytest.mark.parametrize("case", ["without_stages", "asynchronous"])
def test_unknown_stages_are_missing(ranks: Recorded, case: str) -> None:
    for fit in ranks.fits(case):
        check_steps(fit, 0, 24, timestamps=("data",))
    ranks.clean(case)
    assert ranks.same_weights(case)


def test_a_step_in_flight_shows_which_rank_is_missing_from_a_collective(ranks: Recorded) -> None:
    for rank, expected in enumerate(("ready", "data")):
        [log] = ranks.logs("stuck").glob(f"rank-0000{rank}.*.steps.csv")
        # Later descriptions may show what the step reached when rank 1 went on.
        first = re.search(r'"reached":"(\w+)".*"step":12,', log.read_text())
        assert first
        assert first[1] == expected
    ranks.clean("stuck")
