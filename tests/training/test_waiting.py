"""What a rank does with its CPU core while it waits for another one."""

from __future__ import annotations

import pytest
from training.recorded import Recorded

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


def test_a_waiting_rank_sleeps_in_tensorflow(recorded: Recorded) -> None:
    # In PyTorch it polls: test_torch_ranks.py.
    found = recorded.result("waits_for_a_rank")
    # A sleeping thread uses nothing even where others work; a polling one most of a core.
    assert found["cpu_seconds"] < 0.1 * found["waited_seconds"]
