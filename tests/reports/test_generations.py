"""Reports of a job whose ranks change show every generation."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.generations import GROWN_AND_SHRUNK, write_generations

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read
from stallscope.text.job_words import ranks_and_hosts


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    write_generations(tmp_path, GROWN_AND_SHRUNK)
    (run,) = read(str(tmp_path))
    return analyse(run)


def test_the_number_of_ranks_is_that_of_all_generations(analysis: Analysis) -> None:
    assert ranks_and_hosts(analysis) == "2 to 3 ranks on 3 hosts"
