"""Two ranks of MXNet reduce gradients while they compute others, with and without a recorder."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.recorded import check_steps, record_mxnet_cases

pytestmark = pytest.mark.frameworks


def test_gradients_are_reduced_while_others_are_computed_as_without_a_recorder(
    tmp_path: Path,
) -> None:
    ranks = record_mxnet_cases(tmp_path, ranks=2, cases=("overlap",))
    for fit in ranks.fits("overlap"):
        # The trainer has counted the steps without a recorder.
        check_steps(fit, 24, 24)
    for rank in range(2):
        result = ranks.result("overlap", rank)
        # Most of 24 steps overlap, also on a busy machine.
        assert result["silent"] >= 18
        assert result["recorded"] >= 16
