"""A condition: parsed from text, evaluated for an analysis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from stallscope.analysis import Analysis
from stallscope.formatting.plain import plain
from stallscope.query import State, judge, parse_expression
from stallscope.query.syntax import Node

from .evaluation import compare
from .validation import checked_condition


@dataclass(frozen=True)
class Outcome:
    """Whether a condition held, and why, in a sentence without its full stop.

    ``held`` is None where a figure that decides is missing; ``says`` names it and the cause.
    """

    held: bool | None
    says: str


@dataclass(frozen=True)
class Condition:
    """A condition on a run; parsing its text gives the same condition."""

    node: Node

    def __str__(self) -> str:
        return str(self.node)

    def check(self, analysis: Analysis) -> Outcome:
        """Evaluate the condition for a run.

        Point estimates decide; within ``surely(…)`` whole 95 % intervals do.
        """
        found = judge(self.node, partial(compare, analysis))
        held = None if found.state is State.UNKNOWN else found.state is State.YES
        return Outcome(held, plain("; ".join(dict.fromkeys(found.says))))


def parse(text: str) -> Condition:
    """Parse a condition such as ``input.excess>20%``; docs/conditions.md has the language.

    Raises:
        ValueError: if it is invalid; the message is one sentence with the column of the error.
    """
    return Condition(checked_condition(parse_expression(text)))
