"""Whether the parts of a condition mean something: names there are, and kinds that go together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from . import kinds
from .figures import figure, known_names
from .kinds import UNITS, Kind
from .syntax import Arithmetic, Comparison, Joined, Name, Negative, Node, Not, Number, Surely, Text
from .tokens import wrong

_ORDERED = ("<", "<=", ">", ">=")


def checked_condition(node: Node) -> Node:
    """The condition, with ``baseline`` alone taken for the figure that it is compared with.

    Raises:
        ValueError: if it is invalid; the message gives the error and its column.
    """
    if isinstance(node, Joined):
        left, right = checked_condition(node.left), checked_condition(node.right)
        return replace(node, left=left, right=right)
    if isinstance(node, (Not, Surely)):
        return replace(node, operand=checked_condition(node.operand))
    if isinstance(node, Comparison):
        return _checked_comparison(node)
    _kind_of(node)
    raise wrong(
        node.column, f"{node} is no condition: compare it with something, as in input.excess>20%"
    )


def _checked_comparison(node: Comparison) -> Comparison:
    names = [*_names(node.left), *_names(node.right)]
    for name in names:
        _check_name(name)
    alone = next((name for name in names if not name.path), None)
    if alone is not None:
        meant = _meant(alone, names)
        node = replace(node, left=_filled(node.left, meant), right=_filled(node.right, meant))
    left, right = _kind_of(node.left), _kind_of(node.right)
    if Kind.TEXT in (left, right):
        _check_words(node, left, right)
    elif kinds.same(left, right) is None:
        raise wrong(
            node.right.column, f"{node.left} is {left.value} and {node.right} {right.value}"
        )
    return node


def _names(node: Node) -> Iterator[Name]:
    """The figures of one side of a comparison."""
    if isinstance(node, Name):
        yield node
    elif isinstance(node, Negative):
        yield from _names(node.operand)
    elif isinstance(node, Arithmetic):
        yield from _names(node.left)
        yield from _names(node.right)


def _check_name(name: Name) -> None:
    if not name.path:
        return
    found = figure(name.path)
    if found is None:
        raise wrong(name.column, f"there is no figure {str(name)!r}{_nearest(name)}")
    if name.of_baseline and not found.of_baseline:
        raise wrong(name.column, f"a baseline has no {replace(name, of_baseline=False)} of its own")


def _nearest(name: Name) -> str:
    names = known_names()
    written = str(replace(name, of_baseline=False))
    within = [known for known in names if known.startswith(f"{written}.")]
    near = within or get_close_matches(written, names, n=1) or _beginning_like(written, names)
    if not near:
        return "; docs/conditions.md lists those there are"
    return f"; did you mean {'baseline.' if name.of_baseline else ''}{near[0]}?"


def _beginning_like(written: str, names: list[str]) -> list[str]:
    firsts = [known.partition(".")[0] for known in names]
    near = get_close_matches(written.partition(".")[0], firsts, n=1)
    return [known for known in names if known.partition(".")[0] in near]


def _meant(alone: Name, names: list[Name]) -> Name:
    """What ``baseline`` alone stands for."""
    others = {name.path for name in names if name.path}
    if len(others) != 1:
        raise wrong(alone.column, "which figure of the baseline? For example baseline.step_ms.p50")
    meant = replace(alone, path=others.pop())
    _check_name(meant)
    return meant


def _filled(node: Node, meant: Name) -> Node:
    """One side of a comparison, with ``baseline`` alone replaced."""
    if isinstance(node, Name):
        return node if node.path else replace(meant, column=node.column)
    if isinstance(node, Negative):
        return replace(node, operand=_filled(node.operand, meant))
    if isinstance(node, Arithmetic):
        return replace(node, left=_filled(node.left, meant), right=_filled(node.right, meant))
    return node


def _kind_of(node: Node) -> Kind:
    if isinstance(node, Number):
        return UNITS[node.unit][0]
    if isinstance(node, Text):
        return Kind.TEXT
    if isinstance(node, Name):
        _check_name(node)
        found = figure(node.path)
        return Kind.BARE if found is None else found.kind
    if isinstance(node, Negative):
        return _kind_of_negative(node)
    if isinstance(node, Arithmetic):
        return _kind_of_arithmetic(node)
    checked_condition(node)
    return Kind.TRUTH


def _kind_of_negative(node: Negative) -> Kind:
    kind = _kind_of(node.operand)
    if kind in (Kind.TEXT, Kind.TRUTH):
        raise wrong(node.column, f"{node.operand} is {kind.value} and has no negative")
    return kind


def _kind_of_arithmetic(node: Arithmetic) -> Kind:
    left, right = _kind_of(node.left), _kind_of(node.right)
    rule = {"*": kinds.product, "/": kinds.quotient}.get(node.sign, kinds.same)
    kind = rule(left, right)
    if kind is None:
        raise wrong(
            node.column,
            f"{node.left} is {left.value} and {node.right} {right.value}: no {node.sign} between them",
        )
    return kind


def _check_words(node: Comparison, left: Kind, right: Kind) -> None:
    if left is not right:
        raise wrong(
            node.right.column, f"{node.left} is {left.value} and {node.right} {right.value}"
        )
    if node.sign in _ORDERED:
        raise wrong(node.column, f"words are compared with == and !=, not with {node.sign}")
    for name, text in ((node.left, node.right), (node.right, node.left)):
        if isinstance(name, Name) and isinstance(text, Text):
            _check_choice(name, text)


def _check_choice(name: Name, text: Text) -> None:
    found = figure(name.path)
    choices = () if found is None else found.choices
    if choices and text.text not in choices:
        near = get_close_matches(text.text, choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f": it is one of {', '.join(choices)}"
        raise wrong(text.column, f"{name} is never {text.text!r}{hint}")
