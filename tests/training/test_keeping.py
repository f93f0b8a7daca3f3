"""Real ranks whose logs are brought together by hand, or hold some steps in full only."""

from __future__ import annotations

import pytest
from training.recorded import Recorded, check_gathered, check_sampled

pytestmark = [pytest.mark.horovod, pytest.mark.cases, pytest.mark.unmeasured]


def test_ranks_that_share_no_folder_gather_their_logs(recorded: Recorded) -> None:
    check_gathered(recorded)


def test_some_steps_are_recorded_in_full_in_several_files(recorded: Recorded) -> None:
    check_sampled(recorded, steps=320)
