"""The first section: what holds the run back, what to do, and the gain."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.analysis import Analysis
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount
from stallscope.text.gains import (
    Gain,
    answers,
    as_fast,
    how_sure,
    main_gain,
    other_gains,
    saving,
    speedup,
    speedup_interval,
)
from stallscope.text.job import ranks_and_hosts, steps_and_epochs
from stallscope.text.machines import evidence
from stallscope.text.verdicts import badge, basis, headline, status
from stallscope.text.why import TITLE, why

from ..document import BigFigure, DocumentBlock, KeyFigure, KeyFigures, Listing, Section, Text
from .contents import advice, throughput

_MOST_GAINS = 4
_NOTHING_GAINED = {
    "insufficient_data": "These logs cannot show it.",
    "compute": "Beyond compute, nothing that is worth mentioning.",
}


def verdict_section(analysis: Analysis, form: str) -> Section:
    """Return the verdict with its evidence and its advice; the gains are its aside."""
    bottleneck = analysis.bottleneck
    return Section(
        headline(bottleneck, analysis.stragglers),
        [*_blocks(analysis, form)],
        style="verdict",
        label=badge(bottleneck),
        status=status(bottleneck),
        aside=[*_aside(analysis)],
    )


def _blocks(analysis: Analysis, form: str) -> Iterator[DocumentBlock]:
    if form == "md":
        yield Text(f": {_about(analysis)}", lead=analysis.run.name)
    yield Text(analysis.bottleneck.evidence)
    reasons = why(analysis)
    if reasons:
        yield Listing(reasons, title=TITLE)
    measured = evidence(analysis)
    if measured and form != "terminal":
        yield Text(measured)
    gain = main_gain(analysis)
    # Pages show it in the aside.
    if gain is not None and form != "html":
        what_if = gain.what_if
        lead = f"{gain.title}, steps would be {' '.join(as_fast(what_if))}"
        yield Text(f" ({how_sure(what_if)}).", lead=lead)
    steps = advice(analysis)
    if steps:
        yield Listing(steps, role="steps", title="What to do")
    if form == "terminal":
        yield Text(f"From {basis(analysis)}.", note=True)
    if form == "html":
        yield from _concerns(analysis)


def _concerns(analysis: Analysis) -> Iterator[Text]:
    """Name the serious findings and count the warnings, which stand below the charts."""
    titles = [finding.title for finding in analysis.findings if finding.severity == "warning"]
    parts = [*titles, *([counted(len(analysis.warnings), "warning")] if analysis.warnings else [])]
    if parts:
        yield Text("; ".join(parts), lead="Also: ", leads_to="findings" if titles else "warnings")


def _about(analysis: Analysis) -> str:
    texts = [ranks_and_hosts(analysis), steps_and_epochs(analysis), throughput(analysis)]
    if analysis.baseline is not None:
        texts.append(f"against baseline {analysis.baseline.run.name}")
    return ", ".join(text for text in texts if text)


def _aside(analysis: Analysis) -> Iterator[DocumentBlock]:
    main, others = main_gain(analysis), other_gains(analysis)[:_MOST_GAINS]
    if main is not None:
        sure = how_sure(main.what_if).capitalize()
        yield BigFigure(
            "Potential gain",
            *as_fast(main.what_if),
            (f"{main.title}. {sure}.", f"Saves {saving(main.what_if, analysis)}."),
        )
    if others:
        yield _key_figures("Other fixes" if main else "Potential gains", others)
    if main is None and not others:
        nothing = _NOTHING_GAINED.get(analysis.bottleneck.kind, "Nothing that is worth mentioning.")
        yield Text(nothing, title="Potential gains")
    asked = answers(analysis)
    if asked:
        yield _key_figures("What-if", asked)
    step = analysis.step
    takes = "" if step is None else f"A step takes {amount(step.mean, 'ms', step.ci95)}. "
    yield Text(f"{takes}From {basis(analysis)}.", note=True)


def _key_figures(title: str, gains: list[Gain]) -> KeyFigures:
    figures = [
        KeyFigure(gain.title, speedup(gain.what_if), speedup_interval(gain.what_if))
        for gain in gains
    ]
    return KeyFigures(figures, title)
