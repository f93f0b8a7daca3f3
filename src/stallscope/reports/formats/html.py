"""A document as one HTML page that needs nothing else, not even the network."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from itertools import count
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stallscope.charts.charts import Chart
from stallscope.charts.svg import NARROW, WIDE, draw, stylesheet
from stallscope.charts.svg.markup import element, rectangle, tooltip
from stallscope.formatting.plain import code_parts, plain

from ..document import CellBar, Table
from ..report_formats import ReportOptions, ReportParts

_BAR = (120.0, 14.0)


def html_text(parts: ReportParts, options: ReportOptions) -> str:
    """Draw the document's sections as cards of a page."""
    document = parts.document("html")
    sortable = any(
        isinstance(block, Table) and block.sorted_by is not None
        for section in document.sections
        for block in section.blocks
    )
    return (
        environment()
        .get_template("document.html.j2")
        .render(
            document=document,
            next_key=count().__next__,
            script=Markup(_script()) if sortable else "",
            script_hash=_hash(_script()) if sortable else "",
            options=options,
        )
    )


@cache
def environment() -> Environment:
    """Return the templates of reports: escaped, and strict about undefined names."""
    environment = Environment(
        loader=PackageLoader("stallscope.reports"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = _coded
    environment.filters["svg"] = _svg
    environment.filters["quoted"] = quote
    environment.filters["chart"] = _chart
    environment.globals.update(chart_styles=Markup(stylesheet()))
    return environment


def _coded(text: str) -> Markup:
    """Mark text between backticks as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(plain(part)) if is_code else plain(part)
        for part, is_code in code_parts(text)
    )


def _shown(value: object) -> object:
    """Write invisible characters as escapes; Jinja escapes the text afterwards."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _chart(chart: Chart, name: str, key: int) -> Markup:
    """Draw a chart for wide or for narrow pages; the key is unique on the page."""
    return Markup(draw(chart, f"{name}-{key}", WIDE if name == "wide" else NARROW))


def _svg(bar: CellBar) -> Markup:
    """Draw a small bar; its text names its parts."""
    width, height = _BAR
    parts, x = [tooltip(bar.text)], 0.0
    for name, share in bar.parts:
        parts.append(rectangle(x, 0.0, share * width, height, class_=f"fill-{name}"))
        x += share * width
    return Markup(
        element(
            "svg", *parts, class_="small", role="img", aria_label=bar.text,
            viewBox=f"0 0 {width:.0f} {height:.0f}", preserveAspectRatio="none",
        )
    )  # fmt: skip


@cache
def _script() -> str:
    return (files("stallscope.reports") / "templates" / "sort.js").read_text()


def _hash(script: str) -> str:
    """Return the source expression with which a Content-Security-Policy allows only this script."""
    digest = hashlib.sha256(f"\n{script}\n".encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
