"""Other callbacks take time between steps; validation and checkpoints have intervals."""

from __future__ import annotations

import pytest
from training.recorded import Fit, Recorded, check_steps

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


def test_time_in_other_callbacks_is_in_no_stage(recorded: Recorded) -> None:
    """They take 200 ms per batch: 50 before and after the recorder's callback, when a batch begins and
    when it ends.
    """
    for fit in recorded.fits("sleepers"):
        check_steps(fit, 0, 12)
        between = fit.steps["begin"].to_numpy()[1:] - fit.steps["end"].to_numpy()[:-1]
        assert between.min() >= 200e6
        assert fit.median_ms("begin", "data") < 50
        assert fit.median_ms("data", "ready") < 50
    recorded.clean("sleepers")


def test_each_checkpoint_is_an_interval_of_the_rank_that_saves(recorded: Recorded) -> None:
    saving, peer = recorded.fits("checkpoints")
    check_steps(saving, 0, 24)
    check_steps(peer, 0, 24)
    rows = saving.of_kind("checkpoint")
    # Each epoch has one after its sixth batch, and one per format at its end.
    assert list(rows["step"]) == [6, 12, 12, 12, 18, 24, 24, 24]
    assert list(rows["epoch"]) == [0, 0, 0, 0, 1, 1, 1, 1]
    for begin, end in zip(rows["begin"], rows["end"], strict=True):
        assert end > begin
        assert not _overlaps_steps(saving, begin, end)
    assert list(peer.of_kind("checkpoint")["step"]) == []
    recorded.clean("checkpoints")


@pytest.mark.parametrize("saved", ["model.h5", "model.keras", "saved_model", "by-self", "resumed"])
def test_a_model_that_is_saved_while_recording_loads_again(recorded: Recorded, saved: str) -> None:
    assert recorded.result("checkpoints")["same"][saved] is True


def _overlaps_steps(fit: Fit, begin: int, end: int) -> bool:
    return bool(((fit.steps["begin"] < end) & (fit.steps["end"] > begin)).any())
