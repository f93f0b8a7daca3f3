"""A condition: parsed from text, evaluated for an analysis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from stallscope.analysis import Analysis
from stallscope.formatting.plain import plain
from stallscope.query import State, evaluate, parse_expression
from stallscope.query.syntax import Name, Node, leaves_of

from .evaluation import Lookup, compare
from .figures import read
from .found import NO_BASELINE, Found
from .quantities import Missing
from .stopping import LogProgress, is_of_progress, read_of_progress
from .validation import checked_condition


@dataclass(frozen=True)
class Outcome:
    """Whether a condition held, and why, in a sentence without its full stop.

    ``held`` is None if a decisive figure is missing; ``why`` names it and the cause.
    """

    held: bool | None
    why: str


@dataclass(frozen=True)
class Condition:
    """A condition on a run; parsing its text gives the same condition."""

    node: Node

    def __str__(self) -> str:
        return str(self.node)

    def check(self, analysis: Analysis, progress: LogProgress | None = None) -> Outcome:
        """Evaluate the condition for a run, and for its progress if that is known.

        Point estimates decide; within ``surely(…)`` whole 95 % intervals do.
        """

        def lookup(name: Name) -> Found:
            if progress is not None and is_of_progress(name):
                return read_of_progress(progress, name)
            return read(name.path, name.of_baseline, analysis)

        return self._outcome(lookup)

    def lacks_baseline(self, analysis: Analysis) -> bool:
        """Return whether the condition compares the run with a baseline, and there is none."""
        figures = (read(name.path, name.of_baseline, analysis) for name in self._names())
        return Missing(NO_BASELINE) in figures

    @property
    def needs_analysis(self) -> bool:
        """Return whether ``check_progress`` cannot evaluate it."""
        return not all(map(is_of_progress, self._names()))

    def names(self, figure: str) -> bool:
        """Return whether the condition is about a figure, or one of its parts."""
        return any(name.path[0] == figure for name in self._names())

    def check_progress(self, progress: LogProgress) -> Outcome:
        """Evaluate a condition on the run's progress only."""
        return self._outcome(partial(read_of_progress, progress))

    def _names(self) -> Iterator[Name]:
        return (leaf for leaf in leaves_of(self.node) if isinstance(leaf, Name))

    def _outcome(self, lookup: Lookup) -> Outcome:
        evaluation = evaluate(self.node, partial(compare, lookup))
        held = None if evaluation.state is State.UNKNOWN else evaluation.state is State.YES
        return Outcome(held, plain("; ".join(dict.fromkeys(evaluation.why))))


def parse(text: str) -> Condition:
    """Parse a condition such as ``input.excess>20%``; docs/conditions.md has the language.

    Raises:
        ValueError: if it is invalid; the message is one sentence with the column of the error.
    """
    return Condition(checked_condition(parse_expression(text)))
