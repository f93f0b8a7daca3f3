"""Keras 2 beside a Keras 3: the package tf_keras, and tf.keras where it stands for that."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.environments import KERAS3, needs
from training.launching import launch
from training.recorded import check_steps, fits_of

from stallscope.parsers import read

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]

PATIENCE_SECONDS = 120.0


@pytest.mark.parametrize("legacy", ["0", "1"])
def test_every_stage_of_every_step_is_there(tmp_path: Path, legacy: str) -> None:
    needs(KERAS3)
    launch(
        tmp_path / "printed.txt",
        "tf_keras_case.py",
        str(tmp_path / "logs"),
        environment=KERAS3,
        TF_USE_LEGACY_KERAS=legacy,
    ).succeed(PATIENCE_SECONDS)
    [run] = read(str(tmp_path / "logs"))
    [fit] = fits_of(run)
    check_steps(fit, 0, 20)
    assert set(fit.steps["samples"]) == {16}
    assert fit.facts["versions"]["keras"].startswith("2.")
    assert fit.facts["stamps"] == {"placed": ["data", "ready"], "reason": None}
