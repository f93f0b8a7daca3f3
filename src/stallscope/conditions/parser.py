"""From text to the parts of a condition: a descent through the few rules of the grammar.

    either     = both {"or" both}
    both       = inverse {"and" inverse}
    inverse    = "not" inverse | comparison
    comparison = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
    sum        = product {("+" | "-") product}
    product    = signed {("*" | "/") signed}
    signed     = "-" signed | atom
    atom       = number [unit] | text | name | "surely" "(" either ")" | "(" either ")"

A grammar this small is read by hand, so that errors use the user's words.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from .kinds import UNITS
from .syntax import Arithmetic, Comparison, Joined, Name, Negative, Node, Not, Number, Surely, Text
from .tokens import Token, tokens_of, wrong

#: Parentheses, ``not`` and minus signs within each other; real conditions have fewer.
_DEEPEST = 30
_COMPARING = ("<", "<=", ">", ">=", "==", "!=")


def read_parts(text: str) -> Node:
    """The parts of a condition, in which names and units need not fit yet.

    Raises:
        ValueError: if it cannot be read; the message gives the error and its column.
    """
    reader = _Reader(tokens_of(text))
    node = reader.either()
    reader.expect_end()
    return node


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def either(self) -> Node:
        left = self._both()
        while self._take("or"):
            left = Joined("or", left, self._both(), column=left.column)
        return left

    def expect_end(self) -> None:
        token = self._next
        if token.kind == "end":
            return
        if token.text == "=":
            raise wrong(token.column, "= compares nothing: say ==")
        if token.text in _COMPARING:
            raise wrong(token.column, "a second comparison: join the two with and")
        if token.text == ")":
            raise wrong(token.column, "this ) closes nothing")
        raise wrong(token.column, f"{token.text!r} joins nothing: join conditions with and, or")

    def _both(self) -> Node:
        left = self._inverse()
        while self._take("and"):
            left = Joined("and", left, self._inverse(), column=left.column)
        return left

    def _inverse(self) -> Node:
        token = self._take("not")
        if token is None:
            return self._comparison()
        return Not(self._deeper(token, self._inverse), column=token.column)

    def _comparison(self) -> Node:
        left = self._sum()
        sign = self._take(*_COMPARING)
        if sign is None:
            return left
        return Comparison(sign.text, left, self._sum(), column=left.column)

    def _sum(self) -> Node:
        left = self._product()
        while sign := self._take("+", "-"):
            left = Arithmetic(sign.text, left, self._product(), column=left.column)
        return left

    def _product(self) -> Node:
        left = self._signed()
        while sign := self._take("*", "/"):
            left = Arithmetic(sign.text, left, self._signed(), column=left.column)
        return left

    def _signed(self) -> Node:
        token = self._take("-")
        if token is None:
            return self._atom()
        return Negative(self._deeper(token, self._signed), column=token.column)

    def _atom(self) -> Node:
        token = self._next
        if token.kind in ("number", "text", "name"):
            self._at += 1
            return self._plain(token)
        if self._take("surely"):
            opened = self._next
            if not self._take("("):
                raise wrong(opened.column, "( is missing after surely")
            return Surely(self._closed(opened), column=token.column)
        if self._take("("):
            return self._closed(token)
        found = "the text ends" if token.kind == "end" else f"there is {token.text!r}"
        raise wrong(token.column, f"{found} where a figure or a number is missing")

    def _plain(self, token: Token) -> Node:
        if token.kind == "text":
            return Text(token.parts[0], column=token.column)
        if token.kind == "number":
            return self._number(token)
        of_baseline = token.parts[0] == "baseline"
        return Name(token.parts[of_baseline:], of_baseline, column=token.column)

    def _number(self, token: Token) -> Number:
        value, unit = float(token.text), self._next.text
        if unit and unit in UNITS:
            self._at += 1
        else:
            unit = ""
        if not isfinite(value * UNITS[unit][1]):
            raise wrong(token.column, f"{token.text} is too large a number")
        return Number(value, unit, column=token.column)

    def _closed(self, opened: Token) -> Node:
        node = self._deeper(opened, self.either)
        if not self._take(")"):
            raise wrong(self._next.column, f"the ( of column {opened.column} is not closed")
        return node

    def _deeper(self, token: Token, read: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise wrong(token.column, f"more than {_DEEPEST} levels within each other")
        node = read()
        self._depth -= 1
        return node

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, *signs: str) -> Token | None:
        """The next token, if it is one of these signs."""
        token = self._next
        if token.kind != "sign" or token.text not in signs:
            return None
        self._at += 1
        return token
