"""Steps and ranks as a user names them."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.errors import UsageError
from stallscope.exports.exported_run import Selection, parse_ranks


def test_ranks_and_ranges_of_them() -> None:
    assert parse_ranks("0,3,8-10") == {0, 3, 8, 9, 10}
    assert parse_ranks(" 2 , 2-2") == {2}


@pytest.mark.parametrize("text", ["", "a", "1,", "1-", "-1", "3-1", "1-2-3", "٣", "0-99999999"])
def test_an_invalid_selection_is_an_error_of_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        parse_ranks(text)


def test_steps_and_ranks_that_a_run_does_not_have_are_an_error() -> None:
    steps = np.arange(10, 20)
    Selection(19, None, frozenset({1})).check(steps, [0, 1])
    with pytest.raises(UsageError, match="no step from 20: the run has steps 10 to 19"):
        Selection(20).check(steps, [0])
    with pytest.raises(UsageError, match="no step from 3 to 9: the run has steps 10 to 19"):
        Selection(3, 9).check(steps, [0])
    with pytest.raises(UsageError, match=r"no steps of ranks 7 and 9: the run has ranks 0 and 1"):
        Selection(ranks=frozenset({1, 7, 9})).check(steps, [0, 1])
