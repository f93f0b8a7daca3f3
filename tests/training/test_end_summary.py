"""Rank 0 of a real training ends with a summary of all ranks, or prints how to get one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from training.environments import ROOT, apps_packages
from training.launching import launch_words

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

#: Rank 1 sleeps as long before each batch.
SLOW_MS = 250.0
LAUNCHERS = {
    "horovodrun": ["horovodrun", "--disable-cache", "-np", "2", "python"],
    "torchrun": ["torchrun", "--standalone", "--nproc-per-node", "2"],
}


def summary(folder: Path, launcher: str, *packages: str) -> list[str]:
    """Train, and return the lines of the summary without the launcher's labels.

    Args:
        packages: folders with packages that the training's environment lacks.
    """
    launched = launch_words(
        folder / "printed.txt",
        LAUNCHERS[launcher],
        "summarised.py",
        str(folder / "logs"),
        PYTHONPATH=os.pathsep.join([str(ROOT / "src"), *packages]),
    )
    launched.succeed()
    lines = [line.partition("<stderr>:")[2] or line for line in launched.output.splitlines()]
    # Printed once, by rank 0.
    (first,) = [index for index, line in enumerate(lines) if line.startswith("stallscope: ")]
    return lines[first : first + 6]


def milliseconds(stage: str, line: str) -> float:
    match = re.search(rf"\b{stage} ([\d.]+)", line)
    assert match, line
    return float(match[1])


@pytest.mark.parametrize(
    # Without the app torchrun starts the ranks.
    "launcher",
    ["horovodrun", pytest.param("torchrun", marks=pytest.mark.variant)],
)
def test_six_lines_name_the_slow_rank(training_side: None, tmp_path: Path, launcher: str) -> None:
    verdict, step, stragglers, gain, logs, more = summary(tmp_path, launcher, apps_packages())
    assert verdict == "stallscope: Rank 1 holds this run back: its input is slow"
    assert milliseconds("step time:", step) >= SLOW_MS
    # Input is a mean over ranks: rank 0 waits for rank 1, but computes during a part of rank 1's input.
    assert milliseconds("input", step) > 0.5 * SLOW_MS
    assert "waiting for slow ranks" in step
    assert "rank 1, input" in stragglers
    assert "With rank 1 as fast as the others" in gain
    # Rank 0 waits for rank 1, which ends later.
    assert logs.endswith(" of 2 ranks)")
    assert f"stallscope report '{tmp_path / 'logs'}#" in more


def test_without_the_app_rank_0_prints_its_own_times_and_how_to_get_more(
    training_side: None, tmp_path: Path
) -> None:
    verdict, step, stragglers, _, logs, more = summary(tmp_path, "torchrun")
    assert verdict.startswith("stallscope: no verdict: this needs ")
    # The input of rank 1 is waiting on rank 0.
    assert "ms on rank 0, the mean of 50 steps: input " in step
    assert milliseconds("waiting and allreduce", step) > 0.5 * SLOW_MS
    assert stragglers == "  stragglers: unknown"
    assert "rank 0 of 2" in logs
    assert "pip install 'stallscope[app]', then stallscope report " in more
