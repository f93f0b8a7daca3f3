"""Synthetic data equals the real data except for its numbers."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_steps

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


@pytest.mark.parametrize("kind", ["dataset", "stream", "sequence", "generator", "arrays"])
def test_synthetic_data_has_the_structure_types_and_shapes_of_the_data(
    recorded: Recorded, kind: str
) -> None:
    real, like = recorded.result("synthetic")["shapes"][kind]
    assert like == real


def test_synthetic_data_is_as_long_as_the_data_or_endless(recorded: Recorded) -> None:
    # -1 is TensorFlow's infinite cardinality.
    lengths = recorded.result("synthetic")["lengths"]
    assert lengths == {"dataset": 12, "stream": -1, "sequence": 12}


def test_synthetic_numbers_are_random_and_labels_and_words_are_real_ones(
    recorded: Recorded,
) -> None:
    result = recorded.result("synthetic")
    assert result["same_numbers"] is False
    assert result["labels_in_range"] is True
    assert result["words"] == ["some", "words"]


def test_data_without_a_batch_is_an_error(recorded: Recorded) -> None:
    assert recorded.result("synthetic")["refused"] == "the data has no batch to take shapes from"


def test_training_on_synthetic_data_is_a_baseline(recorded: Recorded) -> None:
    for fit in recorded.fits("synthetic"):
        check_steps(fit, 0, 24)
        assert fit.facts["synthetic"] is True
    assert recorded.run("synthetic").synthetic is True
    recorded.clean("synthetic")
