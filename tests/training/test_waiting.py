"""What a rank does with its CPU core while it waits for another one."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from training.launching import Launch
from training.waiting_case import WAITING_SECONDS

PATIENCE_SECONDS = 240.0


@pytest.mark.horovod
@pytest.mark.unmeasured
@pytest.mark.parametrize(("framework", "polls"), [("torch", True), ("tensorflow", False)])
def test_a_waiting_rank_polls_in_pytorch_and_sleeps_in_tensorflow(
    start: Callable[..., Launch], framework: str, polls: bool
) -> None:
    launched = start("waiting_case.py", framework, ranks=2)
    launched.succeed(PATIENCE_SECONDS)
    found = re.search(r"CPU seconds: ([\d.]+)", launched.output)
    assert found is not None, launched.output
    # A polling thread gets most of a core even where others work; a sleeping one gets nothing.
    assert (float(found[1]) > 0.1 * WAITING_SECONDS) == polls
