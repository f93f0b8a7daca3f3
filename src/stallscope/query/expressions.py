"""Conditions on computed figures, ``step_ms.p99>2*step_ms.p50``."""

from __future__ import annotations

import re
from math import isfinite

from .kinds import UNITS
from .reader import Reader, Token, wrong
from .syntax import BINDING, COMPARISON, SIMPLE_PART, Name, Node, Number, TextLiteral

#: The longest condition, in characters.
_LONGEST = 1000
_TEXT = r"'[^']*'|\"[^\"]*\""
_PART = rf"(?:{SIMPLE_PART.pattern}|{_TEXT})"


def parse_expression(text: str) -> Node:
    """Parse a condition; its names and units are not validated yet.

    Raises:
        ValueError: if it cannot be read; the message gives the error and its column.
    """
    if len(text) > _LONGEST:
        raise ValueError(
            f"a condition has at most {_LONGEST:,} characters, and this one {len(text):,}"
        )
    return _Expression(text).read()


class _Expression(Reader):
    token = re.compile(
        rf"""\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
        rf"""|(?P<sign>(?:and|or|not|surely)(?![A-Za-z0-9_:.])|==|!=|>=|<=|[-<>=~()+*/%])"""
        rf"""|(?P<name>{SIMPLE_PART.pattern}(?:\.{_PART})*)|(?P<text>{_TEXT}))"""
    )

    def read(self) -> Node:
        node, token = self._parts(), self._next
        if token.kind == "end":
            return node
        if BINDING.get(token.text) == COMPARISON:
            raise wrong(token.column, "a second comparison: join the two with and")
        if token.text == ")":
            raise wrong(token.column, "this ) closes nothing")
        raise wrong(token.column, f"{token.text!r} joins nothing: join conditions with and, or")

    def _leaf(self) -> Node:
        token = self._next
        if token.kind in ("end", "sign"):
            problem = f"there is {token.text!r}" if token.text else "the text ends"
            raise wrong(token.column, f"{problem} where a figure or a number is missing")
        self._pass(token)
        if token.kind == "number":
            return self._number(token)
        parts = re.findall(_PART, token.text)
        path = tuple(part[1:-1] if part[0] in "'\"" else part for part in parts)
        if token.kind == "text":
            return TextLiteral(path[0], column=token.column)
        of_baseline = path[0] == "baseline"
        return Name(path[of_baseline:], of_baseline, column=token.column)

    def _number(self, token: Token) -> Number:
        value, unit = float(token.text), self._next
        known = unit.text if unit.text in UNITS else ""
        if known:
            self._pass(unit)
        if not isfinite(value * UNITS[known][1]):
            raise wrong(token.column, f"{token.text} is too large a number")
        return Number(value, known, column=token.column)
