"""The index page: readable without scripts, and sorted by a small one of its own where there are any."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from markupsafe import Markup

from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.charts.charts import TITLES
from stallscope.charts.svg.markup import element, rectangle, tooltip
from stallscope.formatting.numbers import NOT_MEASURED, amount, percent

from ..base import ReportOptions
from ..html import environment, picture_of
from .index import Index, gain, lost, ranks, shares, throughput
from .line import Line
from .trends import trends

_BAR = (120.0, 14.0)


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and what it is sorted by: a number, or its text."""

    text: str
    key: float | str | None = None
    picture: Markup | None = None
    link: str | None = None
    below: str = ""


#: Titles of the columns, and whether they are words.
COLUMNS = (
    ("Run", True),
    ("Verdict", True),
    ("Time lost", False),
    ("Gain of the fix", False),
    ("Step time by cause", True),
    ("Step", False),
    ("Throughput", False),
    ("Ranks", False),
    ("Started, UTC", True),
)


def html_text(index: Index, options: ReportOptions) -> str:
    template = environment().get_template("index.html.j2")
    charts = trends(index.lines)
    return template.render(
        index=index,
        columns=COLUMNS,
        rows=[_row(line, index) for line in index.ranked],
        legend=[(name, TITLES[name]) for name in CAUSES],
        pictures=[picture_of(chart, str(at)) for at, chart in enumerate(charts)],
        script=Markup(_script()),
        script_hash=_hash(_script()),
        options=options,
    )


def _row(line: Line, index: Index) -> list[Cell]:
    page = index.page(line, ".html")
    return [
        Cell(line.name, line.name, link=None if page is None else quote(page)),
        Cell(line.said, line.said),
        Cell(lost(line, index.scale), _last_if_unknown(line.lost_h)),
        Cell(gain(line), _last_if_unknown(line.speedup), below=line.fix or ""),
        _shares(line),
        Cell(amount(line.step_ms, "ms"), _last_if_unknown(line.step_ms)),
        Cell(throughput(line), _last_if_unknown(line.samples_per_second)),
        Cell(ranks(line), line.ranks),
        Cell(line.began or "not known", line.started_at or ""),
    ]


def _last_if_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def _shares(line: Line) -> Cell:
    """A small bar; its text names what is in it."""
    found = shares(line)
    if not found:
        return Cell(NOT_MEASURED, "")
    largest = max(found, key=lambda name: found[name])
    said = ", ".join(f"{TITLES[name].lower()} {percent(share)}" for name, share in found.items())
    width, height = _BAR
    parts, x = [tooltip(said)], 0.0
    for name, share in found.items():
        parts.append(rectangle(x, 0.0, share * width, height, class_=f"fill-{name}"))
        x += share * width
    bar = element(
        "svg", *parts, class_="small", role="img", aria_label=said, viewBox="0 0 120 14",
        preserveAspectRatio="none",
    )  # fmt: skip
    return Cell(f"{percent(found[largest])} {TITLES[largest].lower()}", largest, Markup(bar))


@cache
def _script() -> str:
    return (files("stallscope.reports") / "templates" / "sort.js").read_text()


def _hash(script: str) -> str:
    """As a Content-Security-Policy names the only script that may run."""
    digest = hashlib.sha256(f"\n{script}\n".encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
