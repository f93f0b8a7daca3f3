"""The language of conditions: ``report --fail-if``, ``runs --where`` and the dashboard's search.

All have ``and``, ``or``, ``not`` and parentheses. ``--fail-if`` compares computed figures, as in
``step_ms.p99>2*step_ms.p50``. A list compares a field of each run with a value, as in ``age<7d``;
blanks between its conditions mean ``and``, and a search also takes words of the runs' texts.
"""

from .evaluation import NO, YES, Evaluation, State, evaluate
from .expressions import parse_expression
from .fields import Field, FieldKind, amount, fold
from .filters import Test, Word, parse_filter
from .names import find

__all__ = [
    "NO",
    "YES",
    "Evaluation",
    "Field",
    "FieldKind",
    "State",
    "Test",
    "Word",
    "amount",
    "evaluate",
    "find",
    "fold",
    "parse_expression",
    "parse_filter",
]
