"""A condition: parsed from text, evaluated for an analysis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from stallscope.analysis import Analysis
from stallscope.analysis.stopped.stopped import Stopped
from stallscope.formatting.plain import plain
from stallscope.query import State, judge, parse_expression
from stallscope.query.syntax import Name, Node, leaves_of

from .evaluation import Lookup, compare
from .figures import read
from .stopping import is_of_stop, read_of_stop
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
        return self._outcome(lambda name: read(name.path, name.of_baseline, analysis))

    @property
    def needs_analysis(self) -> bool:
        """Whether ``check_stopped`` cannot evaluate it."""
        names = (leaf for leaf in leaves_of(self.node) if isinstance(leaf, Name))
        return not all(map(is_of_stop, names))

    def check_stopped(self, stopped: Stopped | None) -> Outcome:
        """Evaluate a condition on nothing but whether the job hangs."""
        return self._outcome(partial(read_of_stop, stopped))

    def _outcome(self, lookup: Lookup) -> Outcome:
        found = judge(self.node, partial(compare, lookup))
        held = None if found.state is State.UNKNOWN else found.state is State.YES
        return Outcome(held, plain("; ".join(dict.fromkeys(found.says))))


def parse(text: str) -> Condition:
    """Parse a condition such as ``input.excess>20%``; docs/conditions.md has the language.

    Raises:
        ValueError: if it is invalid; the message is one sentence with the column of the error.
    """
    return Condition(checked_condition(parse_expression(text)))
