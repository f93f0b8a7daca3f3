"""Writes the README's figures from the last line of benchmarks/history.jsonl.

python benchmarks/readme.py
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from figures import Figure
from run import HISTORY, cells

README = Path(__file__).parents[1] / "README.md"
BEGINS, ENDS = "<!-- figures -->", "<!-- /figures -->"
#: What the README quotes, in this order; all of it is in docs/benchmarks.md's `make bench`.
QUOTED = (
    "Keras, 162 gradients: host part per step",
    "Keras, 162 gradients: bytes per step and rank",
    "Keras, one process, 22 gradients: added per step",
    "Keras, 2 ranks, 162 gradients: added per step",
    "Keras, 2 ranks, 162 gradients: added per step, against the Timeline",
    "Keras, 2 ranks, 162 gradients: processors' time added per step, against the Timeline",
    "Keras, 2 ranks, 162 gradients: bytes per step",
    "PyTorch, 162 gradients: host part per step",
    "PyTorch, 20 gradients: added per step",
    "PyTorch, 20 gradients: added per step, against traceml-ai",
    "PyTorch, 160 gradients: added per step, against traceml-ai",
    "MXNet, 2 ranks, 162 gradients: stamps add per step",
    "PyTorch: resident memory that recording 100,000 steps adds",
    "import stallscope.torch, behind its framework",
    "import stallscope.keras, behind its framework",
)


def main() -> None:
    README.write_text(with_figures(README.read_text(), last(HISTORY)))


def last(history: Path) -> dict[str, Any]:
    """What was kept last."""
    content: dict[str, Any] = json.loads(history.read_text().splitlines()[-1])
    return content


def with_figures(text: str, content: dict[str, Any]) -> str:
    """The README with these figures between its markers.

    Raises:
        ValueError: if the markers are not there, or a quoted figure is not among those kept.
    """
    before, begins, rest = text.partition(BEGINS)
    _, ends, after = rest.partition(ENDS)
    if not begins or not ends:
        raise ValueError(f"the README has no {BEGINS} … {ENDS}")
    return f"{before}{BEGINS}\n{section(content)}{ENDS}{after}"


def section(content: dict[str, Any]) -> str:
    figures = {
        own["name"]: Figure.of(own) for one in content["benchmarks"] for own in one["figures"]
    }
    missing = [name for name in QUOTED if name not in figures]
    if missing:
        raise ValueError(f"no such figure in {HISTORY.name}: {', '.join(missing)}")
    machine = content["machine"]
    day = datetime.fromisoformat(content["date"]).date()
    lines = [
        f"On {day}, {machine['cores']} cores of {machine['cpu']}; in brackets the 95 % interval:",
        "",
        "| figure | value | alternative | its value | ratio | target | |",
        "| --- | ---: | --- | ---: | ---: | --- | --- |",
        *(f"| {' | '.join(cells(figures[name]))} |" for name in QUOTED),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
