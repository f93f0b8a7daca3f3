"""Places that logs are fetched from, and the errors of those that cannot be opened."""

from __future__ import annotations

import re
import traceback

import pytest

from stallscope.collector.source_kinds import open_source
from stallscope.errors import StallscopeError

from .stores import SECRET

# "s3://bucket/logs: still waiting for an answer after 10 s", on a busy machine.
_SLOW = re.compile(r": still [^:]* after [\d.]+ s$")


def sentences(errors: str) -> list[str]:
    """Return the lines that a command printed on standard error, without those about slow places."""
    return [line for line in errors.splitlines() if not _SLOW.search(line)]


def refusal(place: str, reason: str = "", shown: str | None = None, causes_too: bool = True) -> str:
    """Open a place that refuses, and return the error: one sentence, without any secret.

    Args:
        place: the user's text.
        reason: the sentence's first words about it.
        shown: the place's name in the sentence, if that hides something.
        causes_too: whether the error's causes must not contain a secret either.
    """
    with pytest.raises(StallscopeError) as raised:
        open_source(place).files()
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{place if shown is None else shown}: {reason}")
    assert SECRET not in sentence
    assert not causes_too or SECRET not in "".join(traceback.format_exception(raised.value))
    return sentence
