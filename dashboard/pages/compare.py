"""Two runs side by side: what changed from one to the other, pictures first."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from urllib.parse import quote

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.comparison import Change, Comparison, Difference, compare
from stallscope.pictures.charts import TITLES, Bar, Chart, Segment, StackedBars, Waterfall
from stallscope.reports.tables import Table
from stallscope.wording.cells import Cells
from stallscope.wording.numbers import amount, percent, rate
from stallscope.wording.plain import plain
from stallscope.wording.verdicts import counted, short_verdict

from ..addresses import Address, root, run_address, runs_address
from ..components.chart_card import chart_card
from ..components.notices import notice
from ..components.swatch import labelled_swatch
from ..components.tables import words_card
from ..store import RunStore
from .base import Page, View
from .run_page import side_by_side

_PATH = "/compare"
# Facts are what somebody's log says they are.
_LONGEST_FACT = 200
_NOISE = (
    "More than noise: the difference lies outside of an interval that all entries of two equal runs "
    "keep together in 95% of pairs. It counts chance from step to step; what differs from one start of "
    "a job to the next, only further runs show."
)


def compare_address(first: str, second: str) -> str:
    """The address of two runs side by side."""
    return f"{root()}{_PATH}?runs={quote(first, safe='')},{quote(second, safe='')}"


class ComparePage(Page):
    path: ClassVar[str] = _PATH

    def view(self, address: Address, store: RunStore) -> View:
        ids = [one for one in address.query.get("runs", "").split(",") if one]
        if len(ids) != 2 or ids[0] == ids[1]:
            return View("Compare", _how())
        first, second = ids
        found = compare(store.analysis(first), store.analysis(second))
        parts = [
            _head(first, second),
            side_by_side(
                _run("A", first, found.first, store), _run("B", second, found.second, store)
            ),
            _outcome(found),
            side_by_side(_chart("ledgers", _ledgers(found)), _chart("changes", _changes(found))),
            side_by_side(_table(found), _facts(found.differences)),
            _nothing_else(found.differences),
        ]
        names = f"{found.first.run.name} and {found.second.run.name}"
        return View(names, dmc.Stack([part for part in parts if part is not None]))


def outcome(found: Comparison) -> tuple[str, str]:
    """What the comparison says: in a few words, and in a sentence."""
    step = found.step
    if step is None:
        return "These logs cannot tell", "One of the runs has no step with a length."
    by = step.by
    times = f"{amount(step.first.value, 'ms')} in A, {amount(step.second.value, 'ms')} in B"
    if step.is_real is None:
        return "Too few steps to tell", f"A step takes {times}; neither is sure."
    if not step.is_real:
        return "No difference beyond noise", f"A step takes {times}. {_but_parts(found)}"
    slower = by.value > 0
    share = percent(abs(by.value) / step.first.value) if step.first.value else ""
    words = f"B's steps are {share} {'longer' if slower else 'shorter'}"
    half = amount(abs(by.value), "ms", None if by.ci95 is None else _turned(by.ci95, slower))
    return (
        words,
        f"A step takes {times}: {half} {'more' if slower else 'less'}. {_most(found, slower)}",
    )


def _turned(ci95: tuple[float, float], as_it_is: bool) -> tuple[float, float]:
    return ci95 if as_it_is else (-ci95[1], -ci95[0])


def _most(found: Comparison, slower: bool) -> str:
    """Which entry changed most in the step's own direction."""
    largest = found.largest
    if largest is None or (largest.by.value > 0) != slower:
        return ""
    return f"Most of it is {TITLES[largest.name].lower()}."


def _but_parts(found: Comparison) -> str:
    moved = [TITLES[change.name].lower() for change in found.entries if change.is_real]
    return f"What changed in parts: {', '.join(moved)}." if moved else ""


def _head(first: str, second: str) -> Any:
    return dmc.Group(
        [
            dmc.Title("Compare two runs", order=1, size="h2", tabIndex=-1),
            dmc.Anchor(
                "Swap A and B", href=compare_address(second, first), refresh=False, size="sm"
            ),
        ],
        align="baseline",
        gap="lg",
    )


def _how() -> Any:
    return dmc.Stack(
        [
            notice(
                "Compare two runs",
                "Select two runs in the list, with the mouse or with the space bar, and choose Compare.",
            ),
            dmc.Anchor("To the list of runs", href=runs_address(), refresh=False),
        ]
    )


def _run(letter: str, run_id: str, analysis: Analysis, store: RunStore) -> Any:
    run, bottleneck = analysis.run, store.summary(run_id).bottleneck
    verdict = short_verdict(bottleneck)
    facts = [counted(run.size, "rank"), counted(analysis.steps, "step")]
    if run.synthetic:
        facts.append("synthetic data")
    if run.started_at is not None:
        facts.append(f"began {run.started_at:%Y-%m-%d %H:%M} UTC")
    return dmc.Card(
        dmc.Group(
            [
                dmc.ThemeIcon(letter, variant="default", size="lg", radius="xl"),
                dmc.Box(
                    [
                        dmc.Anchor(
                            plain(run.name),
                            href=run_address(run_id, store.baseline_of(run_id)),
                            refresh=False,
                            fw=600,
                        ),
                        dmc.Text(" · ".join(facts), size="sm", c="dimmed"),
                        dmc.Group(
                            [
                                labelled_swatch(bottleneck.kind, verdict)
                                if bottleneck.kind in ENTRIES
                                else html.Span(verdict),
                                html.Span(rate(analysis.samples_per_second)),
                            ],
                            gap="md",
                            mt=4,
                        ),
                    ],
                    className="compared",
                    flex=1,
                ),
            ],
            align="flex-start",
            wrap="nowrap",
        ),
        withBorder=True,
        h="100%",
    )


def _outcome(found: Comparison) -> Any:
    words, sentence = outcome(found)
    return dmc.Card(
        [dmc.Title(words, order=2, size="h3"), dmc.Text(sentence, mt=4)], withBorder=True
    )


def _chart(name: str, chart: Chart | None) -> Any:
    return None if chart is None else chart_card(name, chart)


def _ledgers(found: Comparison) -> StackedBars | None:
    if not found.entries or found.step is None:
        return None
    bars = tuple(
        Bar(letter, tuple(_segment(change, letter) for change in found.entries)) for letter in "AB"
    )
    return StackedBars(
        "Where a step's time goes",
        f"A step takes {amount(found.step.first.value, 'ms')} in A and "
        f"{amount(found.step.second.value, 'ms')} in B.",
        "ms",
        bars,
    )


def _segment(change: Change, letter: str) -> Segment:
    mean = change.first if letter == "A" else change.second
    return Segment(change.name, mean.value, mean.ci95)


def _changes(found: Comparison) -> Waterfall | None:
    if not found.entries or found.step is None:
        return None
    changes = tuple(Segment(one.name, one.by.value, one.by.ci95) for one in found.entries)
    return Waterfall(
        "From A to B",
        "What each entry of the ledger adds to A's step, or takes from it.",
        "ms",
        ("A", found.step.first.value),
        changes,
        ("B", found.step.second.value),
    )


def _table(found: Comparison) -> Any:
    changes = [*found.entries, *([found.step] if found.step is not None else [])]
    if found.step is None:
        return None
    cells = Cells.for_all([found.step.first.value, found.step.second.value])
    unit = cells.unit
    return words_card(
        Table(
            "What changed",
            ("Entry", f"A, {unit}", f"B, {unit}", f"B − A, {unit}", "More than noise?"),
            tuple(_row(change, cells) for change in changes),
            emphasised=frozenset({len(changes) - 1}),
            note=_NOISE,
        )
    )


def _row(change: Change, cells: Cells) -> tuple[str, ...]:
    by = change.by
    return (
        TITLES.get(change.name, "Step"),
        cells.plain(change.first.value),
        cells.plain(change.second.value),
        cells.excess(by.value, by.ci95),
        {True: "yes", False: "no", None: "too few steps"}[change.is_real],
    )


def _facts(differences: tuple[Difference, ...]) -> Any:
    if not differences:
        return None
    return words_card(
        Table(
            "What else differs",
            ("Fact", "A", "B"),
            tuple((_title(one.name), _value(one.first), _value(one.second)) for one in differences),
            words=frozenset({0, 1, 2}),
            note="What the runs recorded of themselves, where it is not the same.",
        )
    )


def _nothing_else(differences: tuple[Difference, ...]) -> Any:
    if differences:
        return None
    return dmc.Text("Of model, settings, versions and hosts the runs recorded the same.", size="sm")


def _title(name: str) -> str:
    whole, _, part = plain(name).partition(".")
    return part if whole == "settings" else f"{whole} {part}".replace("_", " ").strip()


def _value(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 1000:
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return plain(text)[:_LONGEST_FACT]
