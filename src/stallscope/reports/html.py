"""HTML: one page that needs nothing else, neither network nor scripts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stallscope.analysis import Analysis
from stallscope.charts.charts import Chart, charts_of
from stallscope.charts.svg import NARROW, WIDE, draw, stylesheet
from stallscope.formatting.numbers import amount
from stallscope.formatting.plain import plain
from stallscope.text import code, epochs, fixes, gains, machines, verdicts

from . import contents
from .base import Report, ReportOptions
from .loader_tables import rates_table, stages_table
from .tables import (
    baselines_table,
    cause_table,
    epochs_table,
    events_table,
    gains_table,
    job_table,
    ledger_table,
    ranks_table,
    step_table,
    stragglers_table,
)

# Tables longer than this, and lists of warnings, are folded.
_LONG = 16
_MOST_GAINS = 4

# Light and dark text colours exist for these kinds; the others are no stage.
_STAGE_KINDS = ("input", "compute", "other", "imbalance", "allreduce")

_NOTHING_GAINED = {
    "insufficient_data": "These logs cannot show it.",
    "compute": "Beyond compute, nothing that is worth mentioning.",
}


@dataclass(frozen=True)
class Picture:
    """A chart, drawn for wide pages and for phones."""

    title: str
    sentence: str
    wide: Markup
    narrow: Markup


class HtmlReport(Report):
    name: ClassVar[str] = "html"
    suffix: ClassVar[str] = ".html"

    def render(self, analysis: Analysis, options: ReportOptions) -> str:
        template = environment().get_template("report.html.j2")
        return template.render(**_view(analysis), options=options)


@cache
def environment() -> Environment:
    """The templates of reports: escaped, and strict about what they are given."""
    environment = Environment(
        loader=PackageLoader("stallscope.reports"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = _coded
    environment.globals.update(
        wording=verdicts,
        fixes=fixes,
        amount=amount,
        picture_styles=Markup(stylesheet()),
        long=_LONG,
    )
    return environment


def _coded(text: str) -> Markup:
    """What stands between backticks as code, the rest as words."""
    return Markup("").join(
        Markup("<code>{}</code>").format(plain(part)) if is_code else plain(part)
        for part, is_code in code.parts(text)
    )


def _shown(value: object) -> object:
    """Text as it is put into the page; Jinja escapes it after this."""
    return plain(value) if type(value) is str else value


def _view(analysis: Analysis) -> dict[str, Any]:
    kind = analysis.bottleneck.kind
    return {
        "analysis": analysis,
        "run": analysis.run,
        "bottleneck": analysis.bottleneck,
        "machines": machines.evidence(analysis),
        "tone": kind if kind in _STAGE_KINDS else "unknown",
        "main_gain": gains.main_gain(analysis),
        "other_gains": gains.other_gains(analysis)[:_MOST_GAINS],
        "nothing_gained": _NOTHING_GAINED.get(kind, "Nothing that is worth mentioning."),
        "answers": gains.answers(analysis),
        "advice": contents.advice(analysis),
        "pictures": [
            picture_of(chart, str(index)) for index, chart in enumerate(charts_of(analysis))
        ],
        "stragglers": stragglers_table(analysis),
        "by_cause": cause_table(analysis),
        "ledger": ledger_table(analysis),
        "epochs": epochs_table(analysis),
        "epoch_figures": epochs.epoch_figures(analysis),
        "ranks_and_hosts": epochs.ranks_and_hosts(analysis),
        "steps_and_epochs": epochs.steps_and_epochs(analysis),
        "job_total": epochs.job_total(analysis),
        "baselines": baselines_table(analysis),
        "rates": rates_table(analysis),
        "loader_stages": stages_table(analysis),
        "gains": gains_table(analysis),
        "events": events_table(analysis),
        "ranks": ranks_table(analysis),
        "step": step_table(analysis),
        "job": job_table(analysis),
        "gap": contents.gap(analysis),
        "single": contents.single_match(analysis),
        "facts": contents.facts(analysis),
        "settings": contents.settings(analysis),
        "throughput": contents.throughput(analysis),
    }


def picture_of(chart: Chart, key: str) -> Picture:
    """A chart for a page; ``key`` is its own there."""
    return Picture(
        chart.title,
        chart.sentence,
        Markup(draw(chart, f"wide-{key}", WIDE)),
        Markup(draw(chart, f"narrow-{key}", NARROW)),
    )
