"""Draw benchmarks/history.jsonl as a page: each figure over the kept runs, with its target.

    python benchmarks/run.py --history

The page is a single file and needs no network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from figures import VERDICTS, Figure, number
from markupsafe import Markup

from stallscope.arrays.stats import Mean
from stallscope.charts.curves import Level, OverRuns, RunDot
from stallscope.charts.svg import NARROW, draw
from stallscope.reports.formats.html import environment

TEMPLATE = Path(__file__).with_name("history_page.html.j2")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class KeptRun:
    """One line of the history."""

    date: str
    commit: str
    machine: str
    #: The figures by name, and by benchmark the names in their order.
    figures: dict[str, Figure]
    benchmarks: dict[str, list[str]]

    @classmethod
    def of(cls, content: dict[str, Any]) -> KeptRun:
        machine = content["machine"]
        benchmarks = {
            benchmark["name"]: [Figure.of(figure) for figure in benchmark["figures"]]
            for benchmark in content["benchmarks"]
        }
        return cls(
            f"{datetime.fromisoformat(content['date']):%Y-%m-%d %H:%M}",
            content["commit"] or "outside of a repository",
            f"{machine['cores']} cores of {machine['cpu']}",
            {figure.name: figure for figures in benchmarks.values() for figure in figures},
            {name: [figure.name for figure in figures] for name, figures in benchmarks.items()},
        )


def page(history: Path) -> str:
    """Return the page of a history.

    Raises:
        ValueError: if nothing was kept.
    """
    runs = [KeptRun.of(json.loads(line)) for line in history.read_text().splitlines()]
    if not runs:
        raise ValueError(f"{history} is empty: make bench ARGS=--keep writes to it")
    template = environment().from_string(TEMPLATE.read_text())
    return template.render(runs=runs, parts=list(_drawn(runs)))


def _drawn(runs: Sequence[KeptRun]) -> Iterator[tuple[str, list[tuple[OverRuns, Markup]]]]:
    """Yield each benchmark with its charts."""
    key = 0
    for name, charts in charts_of(runs).items():
        drawn = []
        for chart in charts:
            key += 1
            drawn.append((chart, Markup(draw(chart, f"figure-{key}", NARROW))))
        yield name, drawn


def charts_of(runs: Sequence[KeptRun]) -> dict[str, list[OverRuns]]:
    """Return a chart for each figure of the last run, by benchmark."""
    return {
        benchmark: [chart_of(runs, name) for name in names]
        for benchmark, names in runs[-1].benchmarks.items()
        if names
    }


def chart_of(runs: Sequence[KeptRun], name: str) -> OverRuns:
    """Chart one figure over the runs; its target is a dashed line.

    A figure whose target is a ratio is drawn as one.
    """
    latest = runs[-1].figures[name]
    as_ratio = _target_is_ratio(latest)
    dots = tuple(RunDot(f"{run.date}, {run.commit}", _mean(run, latest, as_ratio)) for run in runs)
    target = _target(latest)
    levels = () if target is None else (Level(1, len(runs), target, target),)
    return OverRuns(
        name,
        _sentence(latest, as_ratio),
        "" if as_ratio else latest.unit,
        dots,
        levels,
        level="target",
    )


def _sentence(figure: Figure, as_ratio: bool) -> str:
    value = f"{number(figure.value)} {figure.unit}"
    if figure.alternative is not None and figure.ratio is not None:
        drawn = ", drawn as a ratio" if as_ratio else ""
        value += f", {number(figure.ratio)} against {figure.alternative}{drawn}"
    if figure.target is None:
        return f"Last: {value}. No target."
    return f"Last: {value}. Target: {figure.target}, {VERDICTS[figure.met]}."


def _mean(run: KeptRun, latest: Figure, as_ratio: bool) -> Mean | None:
    """Return a run's figure; None if it has no such figure, or in another unit."""
    figure = run.figures.get(latest.name)
    if figure is None or figure.unit != latest.unit:
        return None
    if not as_ratio:
        return Mean(figure.value, figure.interval)
    return None if figure.ratio is None else Mean(figure.ratio, _ends_of_ratio(figure))


def _ends_of_ratio(figure: Figure) -> tuple[float, float] | None:
    """Return the interval of a ratio; if only the value has one, treat the alternative as exact."""
    if figure.ratio_interval is not None or figure.interval is None:
        return figure.ratio_interval
    low, high = (end / (figure.alternative_value or 1.0) for end in figure.interval)
    return low, high


def _target(figure: Figure) -> float | None:
    """Return the number in a target's text; None without a target."""
    match = _NUMBER.search(figure.target or "")
    return None if match is None else float(match[0].replace(",", ""))


def _target_is_ratio(figure: Figure) -> bool:
    words = figure.target or ""
    return words.endswith(("of it", "as fast", "as much"))
