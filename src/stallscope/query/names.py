"""Names of figures and fields; some have two, one in the report and one in the list of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")

_PARTS = ("input", "compute", "other", "imbalance", "allreduce")
#: The words of verdicts, and of their causes.
VERDICTS = (*_PARTS, "balanced", "stopped", "insufficient_data")
VERDICT_CAUSES = ("input", "compute", "other", "network", "cores")
#: The report's names by the list's.
SYNONYMS = {
    "verdict": "bottleneck",
    "fault": "bottleneck.fault",
    "cause": "bottleneck.cause",
    "ranks": "size",
    "steps": "steps.total",
    "step_ms": "step_ms.mean",
    **{part: f"{part}.share" for part in _PARTS},
}
_OTHER_NAME = SYNONYMS | {report: listed for listed, report in SYNONYMS.items()}


def find(table: Mapping[str, T], name: str) -> T | None:
    """Find the entry of a name or its synonym; None if there is neither."""
    return table.get(name, table.get(_OTHER_NAME.get(name, "")))


def nearest(written: str, names: Iterable[str]) -> str:
    """Return the closest known name; empty if none is close.

    It starts with the given text, or it or its first part has a similar spelling.
    """
    names = list(names)
    within = [name for name in names if name.startswith(f"{written}.")]
    alike = get_close_matches(written, [*names, *_OTHER_NAME], n=1)
    return next(iter(within or alike or _beginning_like(written, names)), "")


def never(name: str, word: str, choices: Sequence[str]) -> str:
    """Return an error about a word that a figure or field never is, with the closest one."""
    near = get_close_matches(word, choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f": it is one of {', '.join(choices)}"
    return f"{name} is never {word!r}{hint}"


def _beginning_like(written: str, names: list[str]) -> list[str]:
    firsts = [name.partition(".")[0] for name in names]
    near = get_close_matches(written.partition(".")[0], firsts, n=1)
    return [name for name in names if name.partition(".")[0] in near]
