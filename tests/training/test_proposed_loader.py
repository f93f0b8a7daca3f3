"""Training with the proposed number of loader workers is as fast as with any other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from training.launching import launch

from stallscope.analysis import analyse
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.asleep]


def test_the_proposed_number_of_workers_trains_as_fast_as_any(
    training_side: None, tmp_path: Path
) -> None:
    launched = launch(tmp_path / "printed.txt", "tuned_loader.py", str(tmp_path))
    launched.succeed()
    rates = {}
    for workers in (1, 2, 4, 8):
        (run,) = read(str(tmp_path / f"workers-{workers}"))
        analysis = analyse(run)
        rates[workers] = analysis.samples_per_second or 0.0
        if workers == 1:
            slow = analysis
    assert slow.input_rates is not None
    proposed = slow.input_rates.proposed
    assert proposed is not None
    # One worker needs 80 ms for a batch, and a step takes 25 ms without waiting.
    assert (proposed.workers, proposed.prefetch) == (4, 2)
    assert rates[proposed.workers] > 0.95 * max(rates.values())
    assert rates[2] < 0.8 * rates[4]
    assert slow.bottleneck.kind == "input"
    assert "num_workers=4, prefetch_factor=2" in str(slow.bottleneck.advice[0])
    rows = re.findall(r"^ +(\d+) +(\d+) +[\d.]+(?:  ← .*)?$", launched.output, re.MULTILINE)
    assert rows == [(workers, depth) for workers in "1248" for depth in "248"]
