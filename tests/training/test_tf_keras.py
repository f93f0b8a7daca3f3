"""Keras 2 in an environment with Keras 3: as the package tf_keras, and as tf.keras."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.environments import KERAS3, needs
from training.launching import launch
from training.recorded import check_steps, fits_of

from stallscope.parsers import read

pytestmark = [pytest.mark.frameworks, pytest.mark.unmeasured]


@pytest.mark.parametrize("legacy", [pytest.param("0", marks=pytest.mark.variant), "1"])
def test_each_step_has_all_its_stages(tmp_path: Path, legacy: str) -> None:
    needs(KERAS3)
    launch(
        tmp_path / "printed.txt",
        "tf_keras_case.py",
        str(tmp_path / "logs"),
        environment=KERAS3,
        TF_USE_LEGACY_KERAS=legacy,
    ).succeed()
    [run] = read(str(tmp_path / "logs"))
    [fit] = fits_of(run)
    check_steps(fit, 0, 20)
    assert set(fit.steps["samples"]) == {16}
    assert fit.facts["versions"]["keras"].startswith("2.")
    assert fit.facts["stamps"] == {"placed": ["data", "ready"], "reason": None}
