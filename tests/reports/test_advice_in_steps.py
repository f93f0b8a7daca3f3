"""Advice as steps: a bold action, a line to copy, a caveat; no word is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stallscope.analysis import Analysis
from stallscope.analysis.advice.piece import Advice, in_words
from stallscope.text.advice_words import Step, steps_of

CACHE = Advice(
    "Cache decoded samples, before shuffling",
    "dataset = dataset.cache()",
    unless="Not after random augmentation. Pass a file name if memory is too small.",
)
SHARD = Advice("Reading takes longest. Shard first", "dataset = dataset.shard(2, 0)")
LOOK = Advice("Look at this rank: its disk, its network", unless="Not if it is new.")


def test_the_line_to_copy_is_apart_and_the_caveat_after_it() -> None:
    assert steps_of(str(CACHE)) == [
        Step(
            "Cache decoded samples, before shuffling:",
            line="dataset = dataset.cache()",
            caveat="Not after random augmentation. Pass a file name if memory is too small.",
        )
    ]


def test_a_reason_stands_before_its_action() -> None:
    (step,) = steps_of(str(SHARD))
    assert (step.reason, step.action) == ("Reading takes longest.", "Shard first:")


def test_without_a_line_the_first_clause_is_the_action() -> None:
    (step,) = steps_of(str(LOOK))
    assert step == Step(
        "Look at this rank", detail=": its disk, its network.", caveat="Not if it is new."
    )


def test_several_pieces_are_several_steps() -> None:
    first, second = steps_of(in_words([CACHE, SHARD]))
    assert (first.line, second.line) == (CACHE.line, SHARD.line)
    assert first.caveat.startswith("Not after random augmentation.")
    assert second.action == "Shard first:"


@pytest.mark.parametrize("text", ["", "Look.", "Not ` paired.", "`unset A`", "A: `b`. C: `d`. E."])
def test_no_word_is_lost(text: str) -> None:
    assert _words(text) == [word for step in steps_of(text) for word in _words_of(step)]


@pytest.mark.parametrize("name", ["everything", "a slow rank and a baseline", "two hosts"])
def test_real_advice_keeps_its_words(name: str, case: Callable[[str], Analysis]) -> None:
    analysis = case(name)
    texts = [*analysis.bottleneck.advice, *(finding.advice for finding in analysis.findings)]
    assert texts
    for text in texts:
        assert _words(text) == [word for step in steps_of(text) for word in _words_of(step)]


def _words_of(step: Step) -> list[str]:
    return _words(f"{step.reason} {step.action}{step.detail} {step.line} {step.caveat}")


def _words(text: str) -> list[str]:
    return [word for word in text.replace("`", " ").replace(".", " ").split() if word]
