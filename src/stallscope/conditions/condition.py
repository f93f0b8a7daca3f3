"""A condition: read from text, held against an analysis."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.formatting.plain import plain

from .evaluation import State, judge
from .parser import read_parts
from .syntax import Node
from .validation import checked_condition


@dataclass(frozen=True)
class Outcome:
    """Whether a condition held, and what that rests on, in a sentence without its full stop.

    ``held`` is None where a figure that decides is missing; ``says`` names it and the cause.
    """

    held: bool | None
    says: str


@dataclass(frozen=True)
class Condition:
    """A condition on a run; its text reads as the same condition again."""

    node: Node

    def __str__(self) -> str:
        return str(self.node)

    def check(self, analysis: Analysis) -> Outcome:
        """Hold the condition against a run.

        Point estimates decide; within ``surely(…)`` whole 95 % intervals do.
        """
        found = judge(self.node, analysis)
        held = None if found.state is State.UNKNOWN else found.state is State.YES
        return Outcome(held, plain(found.says))


def parse(text: str) -> Condition:
    """Read a condition such as ``input.excess>20%``; docs/conditions.md has the language.

    Raises:
        ValueError: if it is none; the message is one sentence with the column it is about.
    """
    return Condition(checked_condition(read_parts(text)))
