"""No run gets advice that it follows according to its facts."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analysis.advice_rules import BY_LINE, BY_WORDS, MEASURED, NO_FACT_TELLS, excused, following
from analysis.advice_setups import every_piece, pieces_for

from stallscope.analysis import advice
from stallscope.analysis.gains.what_if import Advice
from stallscope.analysis.setup import Setup

FOLDER = Path(advice.__file__).parent


@pytest.fixture(scope="module")
def given() -> list[tuple[Setup, Advice]]:
    return list(every_piece())


def test_every_piece_has_a_rule_or_a_reason(given: list[tuple[Setup, Advice]]) -> None:
    without = {
        piece.sentence
        for setup, piece in given
        if following(piece, setup) is None and not excused(piece)
    }
    assert without == set()


@pytest.mark.broad
@pytest.mark.any_versions
def test_followed_advice_is_not_given_again(given: list[tuple[Setup, Advice]]) -> None:
    again: dict[str, tuple[Advice, ...]] = {}
    for setup, piece in given:
        followed = following(piece, setup)
        if followed is None:
            continue
        pieces = again.setdefault(repr(followed), pieces_for(followed))
        # The same words with another number in the line are another piece.
        same = [
            candidate
            for candidate in pieces
            if (candidate.line or candidate.sentence) == (piece.line or piece.sentence)
        ]
        assert same == [], f"{piece}\nis given to {followed}"


def test_every_rule_is_for_a_given_piece(given: list[tuple[Setup, Advice]]) -> None:
    for rules, name in ((BY_LINE, "line"), (BY_WORDS, "sentence")):
        texts = [getattr(piece, name) for _, piece in given]
        unused = [rule for rule in rules if not any(re.search(rule, text) for text in texts)]
        assert unused == []
    words = [piece.sentence for _, piece in given]
    for table in (MEASURED, NO_FACT_TELLS):
        assert [
            pattern for pattern in table if not any(re.search(pattern, text) for text in words)
        ] == []


def test_every_place_that_makes_advice_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: set[tuple[str, int]] = set()
    make = Advice.__init__

    def remember(self: Advice, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        tried.add((Path(frame.f_code.co_filename).name, frame.f_lineno))
        make(self, *args, **kwargs)

    monkeypatch.setattr(Advice, "__init__", remember)
    actions = {piece.action for _, piece in every_piece()}
    for place, action in _places():
        assert place in tried or action in actions, place


def _places() -> Iterator[tuple[tuple[str, int], str | None]]:
    """Return where advice is made: file and line, and the action of advice made on import."""
    # Figures of loaders give advice, not facts of a set-up: test_loader_reasons has a case of each.
    paths = {*FOLDER.glob("*.py")} - {FOLDER / "loader_reasons.py"}
    for path in sorted(paths):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Advice":
                first = node.args[0]
                action = first.value if isinstance(first, ast.Constant) else None
                yield (path.name, node.lineno), action if isinstance(action, str) else None
