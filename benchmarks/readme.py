"""Write the figures of README.md and docs/benchmarks.md from the last line of history.jsonl.

python benchmarks/readme.py
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from figures import Figure, number
from run import HISTORY, cells, value_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "benchmarks.md"
#: The end of a figure's name: what it is compared with.
AGAINST = ", against "
BEGINS, ENDS = "<!-- figures -->", "<!-- /figures -->"
#: The figures of docs/benchmarks.md, in this order; `make bench` prints all of them.
QUOTED = (
    "Keras, 162 gradients: host part per step",
    "Keras, one process, 22 gradients: added per step",
    "Keras, 2 ranks, 162 gradients: added per step, against the Timeline",
    "Keras, 2 ranks, 162 gradients: CPU time added per step, against the Timeline",
    "Keras, 2 ranks, 162 gradients: bytes per step",
    "PyTorch, 162 gradients: host part per step",
    "PyTorch, 20 gradients: added per step, against traceml-ai",
    "PyTorch, 160 gradients: added per step, against traceml-ai",
    "MXNet, 2 ranks, 162 gradients: timestamps add per step",
    "PyTorch: resident memory that recording 100,000 steps adds",
)


_TIMELINE = "Keras, 2 ranks, 162 gradients: added per step, against the Timeline"
_TRACEML = "PyTorch, 160 gradients: added per step, against traceml-ai"
_BYTES = "Keras, 2 ranks, 162 gradients: bytes per step"


def main() -> None:
    content = last(HISTORY)
    README.write_text(with_figures(README.read_text(), costs(content)))
    PAGE.write_text(with_figures(PAGE.read_text(), quoted(content)))


def last(history: Path) -> dict[str, Any]:
    """Return the last results of the history."""
    content: dict[str, Any] = json.loads(history.read_text().splitlines()[-1])
    return content


def with_figures(text: str, section: str) -> str:
    """Return the page with this section between its markers.

    Raises:
        ValueError: if the markers are not there.
    """
    before, begins, rest = text.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not begins or not ends:
        raise ValueError(f"the page has no {BEGINS} … {ENDS}")
    return f"{before}{BEGINS}\n{section}{ENDS}{after}"


def costs(content: dict[str, Any]) -> str:
    """Return the README's three lines: time, bytes, and missed targets."""
    figures = _figures(content, (_TIMELINE, _TRACEML, _BYTES))
    time, torch, size = (figures[name] for name in (_TIMELINE, _TRACEML, _BYTES))
    targeted = [figure for figure in figures.values() if figure.target is not None]
    missed = [figure for figure in targeted if figure.met is False]
    lines = [
        f"- **Time per step**: {value_of(time)} with Keras on 2 ranks, where the Horovod Timeline takes "
        f"{_alternative(time)}; {value_of(torch)} with PyTorch, where traceml-ai takes "
        f"{_alternative(torch)}.",
        f"- **Disk**: {value_of(size)} per step and rank, where the Timeline writes "
        f"{_alternative(size)}.",
        f"- **Targets missed**: {len(missed)} of {len(targeted)}{_in_kinds(missed, targeted)}. "
        "[Why](docs/benchmarks.md#missed-targets).",
        "",
        f"{_measured(content)}, 95 % intervals in brackets. [How it was measured](docs/benchmarks.md).",
    ]
    return "\n".join(lines) + "\n"


def _in_kinds(missed: Sequence[Figure], targeted: Sequence[Figure]) -> str:
    """List the missed figures, those of one kind together, such as one for each framework."""
    kinds = Counter(map(_kind, targeted))
    named = []
    for kind, count in Counter(map(_kind, missed)).items():
        (first, *_) = (figure for figure in missed if _kind(figure) == kind)
        alone = kinds[kind] == 1
        named.append(first.name if alone else f"{kind} in {count} of {kinds[kind]} cases")
    return f": {'; '.join(named)}" if named else ""


def _kind(figure: Figure) -> str:
    """Return the part of a figure's name that figures of other frameworks share."""
    return figure.name.rpartition(": ")[2]


def quoted(content: dict[str, Any]) -> str:
    """Return the table of docs/benchmarks.md: the quoted figures, and all with a missed target."""
    figures = _figures(content, QUOTED)
    missed = [
        name for name, figure in figures.items() if figure.met is False and name not in QUOTED
    ]
    lines = [
        f"{_measured(content)}, 95 % intervals in brackets:",
        "",
        "| figure | value | alternative | its value | ratio | target | |",
        "| --- | ---: | --- | ---: | ---: | --- | --- |",
        *(f"| {' | '.join(_row(figures[name]))} |" for name in (*QUOTED, *missed)),
    ]
    return "\n".join(lines) + "\n"


def _row(figure: Figure) -> tuple[str, ...]:
    """Return a figure's row, in which only the column of alternatives names the alternative."""
    name, *others = cells(figure)
    return (name.partition(AGAINST)[0], *others)


def _measured(content: dict[str, Any]) -> str:
    machine, day = content["machine"], datetime.fromisoformat(content["date"]).date()
    return f"Measured on {day}, on {machine['cores']} cores of {machine['cpu']}"


def _alternative(figure: Figure) -> str:
    return f"{number(figure.alternative_value or 0.0)} {figure.unit}"


def _figures(content: dict[str, Any], needed: Sequence[str]) -> dict[str, Figure]:
    """Return all figures by name.

    Raises:
        ValueError: if a needed one is missing.
    """
    figures = {
        figure["name"]: Figure.of(figure)
        for benchmark in content["benchmarks"]
        for figure in benchmark["figures"]
    }
    missing = [name for name in needed if name not in figures]
    if missing:
        raise ValueError(f"no such figure in {HISTORY.name}: {', '.join(missing)}")
    return figures


if __name__ == "__main__":
    main()
