"""Validate conditions: names exist, and kinds match."""

from __future__ import annotations

from dataclasses import replace

from stallscope.query import field_kinds
from stallscope.query.field_kinds import UNITS, Kind, nearest, never
from stallscope.query.syntax import (
    COMPARING,
    Binary,
    Name,
    Node,
    Number,
    TextLiteral,
    Unary,
    leaves_of,
    wrong,
)

from .known_figures import figure, known_names

_ORDERED = ("<", "<=", ">", ">=")


def checked_condition(node: Node) -> Node:
    """Return the condition with its words as texts, and with the figure that ``baseline`` stands for.

    Raises:
        ValueError: if it is invalid; the message gives the error and its column.
    """
    if isinstance(node, Unary) and node.word in ("not", "surely"):
        return replace(node, operand=checked_condition(node.operand))
    if isinstance(node, Binary) and node.word in ("and", "or"):
        left, right = checked_condition(node.left), checked_condition(node.right)
        return replace(node, left=left, right=right)
    if isinstance(node, Binary) and node.word in COMPARING:
        return _checked_comparison(node)
    if _kind_of(node) is Kind.TRUTH:
        return node
    raise wrong(
        node.column, f"{node} is no condition: compare it with something, as in input.excess>20%"
    )


def _checked_comparison(node: Binary) -> Binary:
    node = replace(
        node, left=_as_text(node.left, node.right), right=_as_text(node.right, node.left)
    )
    names = [leaf for leaf in leaves_of(node) if isinstance(leaf, Name)]
    for name in names:
        _check_name(name)
    alone = next((name for name in names if not name.path), None)
    if alone is not None:
        meant = _meant(alone, names)
        node = replace(node, left=_filled(node.left, meant), right=_filled(node.right, meant))
    left, right = _kind_of(node.left), _kind_of(node.right)
    if Kind.TEXT in (left, right):
        _check_words(node, left, right)
    elif node.word == "~":
        raise wrong(node.column, f"~ looks into words, and {node.left} is {left.value}")
    elif field_kinds.same(left, right) is None:
        raise wrong(
            node.right.column, f"{node.left} is {left.value} and {node.right} {right.value}"
        )
    return node


def _as_text(node: Node, opposite: Node) -> Node:
    """Return a word without quotes as a text, if it is compared with a figure that is a word."""
    compared = figure(opposite.path) if isinstance(opposite, Name) else None
    if compared is None or compared.kind is not Kind.TEXT or not isinstance(node, Name):
        return node
    if node.of_baseline or len(node.path) > 1:
        return node
    (word,) = node.path
    is_word = word in compared.choices or figure(node.path) is None
    return TextLiteral(word, column=node.column) if is_word else node


def _check_name(name: Name) -> None:
    if not name.path:
        return
    named_figure = figure(name.path)
    if named_figure is None:
        raise wrong(name.column, f"there is no figure {str(name)!r}{_hint(name)}")
    if name.of_baseline and not named_figure.of_baseline:
        raise wrong(name.column, f"a baseline has no {replace(name, of_baseline=False)} of its own")


def _hint(name: Name) -> str:
    near = nearest(str(replace(name, of_baseline=False)), known_names())
    if not near:
        return "; docs/conditions.md lists those there are"
    return f"; did you mean {'baseline.' if name.of_baseline else ''}{near}?"


def _meant(alone: Name, names: list[Name]) -> Name:
    """Return the figure that ``baseline`` alone refers to."""
    others = {name.path for name in names if name.path}
    if len(others) != 1:
        raise wrong(alone.column, "which figure of the baseline? For example baseline.step_ms.p50")
    meant = replace(alone, path=others.pop())
    _check_name(meant)
    return meant


def _filled(node: Node, meant: Name) -> Node:
    """Replace ``baseline`` alone in one side of a comparison."""
    if isinstance(node, Name):
        return node if node.path else replace(meant, column=node.column)
    if isinstance(node, Unary):
        return replace(node, operand=_filled(node.operand, meant))
    if isinstance(node, Binary):
        return replace(node, left=_filled(node.left, meant), right=_filled(node.right, meant))
    return node


def _kind_of(node: Node) -> Kind:
    if isinstance(node, Number):
        return UNITS[node.unit][0]
    if isinstance(node, TextLiteral):
        return Kind.TEXT
    if isinstance(node, Name):
        _check_name(node)
        named_figure = figure(node.path)
        return Kind.BARE if named_figure is None else named_figure.kind
    if isinstance(node, Unary) and node.word == "-":
        kind = _kind_of(node.operand)
        if kind in (Kind.TEXT, Kind.TRUTH):
            raise wrong(node.column, f"{node.operand} is {kind.value} and has no negative")
        return kind
    if isinstance(node, Binary) and node.word in "+-*/":
        return _kind_of_arithmetic(node)
    checked_condition(node)
    return Kind.TRUTH


def _kind_of_arithmetic(node: Binary) -> Kind:
    left, right = _kind_of(node.left), _kind_of(node.right)
    rule = {"*": field_kinds.product, "/": field_kinds.quotient}.get(node.word, field_kinds.same)
    kind = rule(left, right)
    if kind is None:
        raise wrong(
            node.column,
            f"{node.left} is {left.value} and {node.right} {right.value}: no {node.word} between them",
        )
    return kind


def _check_words(node: Binary, left: Kind, right: Kind) -> None:
    if left is not right:
        raise wrong(
            node.right.column, f"{node.left} is {left.value} and {node.right} {right.value}"
        )
    if node.word in _ORDERED:
        raise wrong(node.column, f"words are compared with == and !=, not with {node.word}")
    for name, text in ((node.left, node.right), (node.right, node.left)):
        if isinstance(name, Name) and isinstance(text, TextLiteral) and node.word != "~":
            _check_choice(name, text)


def _check_choice(name: Name, text: TextLiteral) -> None:
    named_figure = figure(name.path)
    choices = () if named_figure is None else named_figure.choices
    if choices and text.text not in choices:
        raise wrong(text.column, never(str(name), text.text, choices))
