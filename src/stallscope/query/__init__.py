"""The language of conditions: ``report --fail-if``, ``runs --where`` and the dashboard's search.

All have ``and``, ``or``, ``not`` and parentheses. ``--fail-if`` compares computed figures, as in
``step_ms.p99>2*step_ms.p50``. A list compares a field of each run with a value, as in ``age<7d``;
blanks between its conditions mean ``and``, and a search also takes words of the runs' texts.
"""

from .field_kinds import find
from .filters import (
    NO,
    YES,
    Evaluation,
    Field,
    FieldKind,
    State,
    Test,
    Word,
    amount,
    evaluate,
    fold,
    parse_expression,
    parse_filter,
)

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
