"""The flight recorder's dumps of real ranks name the rank that is missing from a collective."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from training.launching import ENVIRONMENT

from stallscope.errors import NotFoundError
from stallscope.parsers import read

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

PROGRAM = Path(__file__).parents[2] / "tools" / "samples" / "flight_dumps.py"


def test_dumps_of_real_ranks_name_the_missing_rank(training_side: None, tmp_path: Path) -> None:
    python = str(ENVIRONMENT / "bin" / "python")
    # It times out by itself, and ends its ranks.
    subprocess.run([python, str(PROGRAM), str(tmp_path), "sleep"], check=True)
    message = "Rank 1 is not in all_reduce 7 .* ranks 0 and 2 wait there"
    with pytest.raises(NotFoundError, match=message):
        read(str(tmp_path))
