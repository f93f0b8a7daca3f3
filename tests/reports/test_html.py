"""The HTML page: verdict first, no scripts, no network, hostile text harmless, valid structure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest
from support.reports import rendered

from stallscope.analysis import Analysis
from stallscope.reports.formats.html import environment
from stallscope.reports.report_formats import ReportOptions

from .cases import NAMES

VOID = {"meta", "link", "br", "img", "input", "hr"}

every_case = pytest.mark.parametrize("name", NAMES)


@dataclass
class Page(HTMLParser):
    """A page as a browser parses it: elements in order, and the text between them."""

    source: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    unclosed: list[str] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.unclosed.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.unclosed:
            self.texts.append((self.unclosed[-1], " ".join(data.split())))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def visible(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in ("style", "title", "desc"))


@pytest.fixture
def page(case: Callable[[str], Analysis], options: ReportOptions) -> Callable[[str], Page]:
    return lambda name: Page(rendered("html", case(name), options))


@pytest.mark.broad
@every_case
def test_the_page_is_valid(name: str, page: Callable[[str], Page]) -> None:
    document = page(name)
    assert document.unclosed == []
    ids = Counter(attributes["id"] for _, attributes in document.elements if "id" in attributes)
    assert [key for key, count in ids.items() if count > 1] == []
    for _, attributes in document.elements:
        for key in attributes.get("aria-labelledby", "").split():
            assert key in ids
    levels = [int(tag[1]) for tag, _ in document.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))


@pytest.mark.broad
@every_case
def test_it_needs_neither_scripts_nor_the_network(name: str, page: Callable[[str], Page]) -> None:
    document = page(name)
    assert not {tag for tag, _ in document.elements} & {"script", "img", "iframe", "object", "form"}
    for tag, attributes in document.elements:
        assert not [key for key in attributes if key.startswith("on") or key == "src"]
        if "href" in attributes:
            links = {("a", f"#{place}") for place in ("verdict", "findings", "warnings")}
            assert (tag, attributes["href"]) in links | {("link", "data:,")}
    assert "url(" not in document.source
    assert "@import" not in document.source
    (policy,) = [
        attributes["content"]
        for attributes in document.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@every_case
def test_it_is_small_enough_to_be_mailed(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    assert len(rendered("html", case(name), options).encode()) < 500_000


def test_the_first_screen_has_verdict_certainty_and_advice(
    page: Callable[[str], Page],
) -> None:
    text = page("a slow rank and a baseline").visible
    first = text[: text.index("Step time: ")]
    assert "Rank 2 holds this run back: its input is slow" in first
    assert "Rank 2 is last in 100% of steps" in first
    assert "What to do Look at this rank's" in first
    assert re.search(r"Potential gain 1\.\d{2,3}× as fast", first)
    assert re.search(r"With rank 2 as fast as the others\. 95% interval: 1\.\d+–1\.\d+×\.", first)
    assert re.search(r"Saves \d+\.\d+ ± \d+\.\d+ ms of the step's \d+\.\d+ ms", first)
    assert "199 steady steps of 4 ranks" in first


def test_charts_come_before_tables(page: Callable[[str], Page]) -> None:
    order = [tag for tag, _ in page("a slow rank and a baseline").elements]
    assert order.index("svg") < order.index("table")
    titles = [text for tag, text in page("a slow rank and a baseline").texts if tag == "h2"]
    assert titles == [
        "Rank 2 holds this run back: its input is slow",
        "Step time: 36.97 ± 0.06 ms",
        "Potential gains",
        "Against the synthetic baseline",
        "Ranks side by side",
        "Step time over the run",
        "Where the job's time went",
        "Findings",
        "Stragglers",
        "Notes",
        "Figures",
        "About the run",
    ]


def test_every_table_has_a_caption_and_scoped_heads(page: Callable[[str], Page]) -> None:
    document = page("a slow rank and a baseline")
    assert len(document.all("caption")) == len(document.all("table")) >= 4
    assert {attributes.get("scope") for attributes in document.all("th")} == {"col", "row"}


def test_keyboards_reach_the_verdict_and_every_scrolled_table(page: Callable[[str], Page]) -> None:
    document = page("a thousand ranks")
    links = [attributes["href"] for attributes in document.all("a")]
    assert links == ["#verdict", "#findings"]
    scrolled = [a for tag, a in document.elements if a.get("class") == "scroll"]
    assert scrolled
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in scrolled)
    assert ":focus-visible" in document.source


def test_light_dark_and_paper_have_styles(page: Callable[[str], Page]) -> None:
    source = page("two ranks").source
    assert "@media screen and (prefers-color-scheme:dark)" in source
    assert "@media print" in source
    assert '<html lang="en">' in source


def test_all_ranks_are_in_the_table_and_the_named_one_stands_out(
    page: Callable[[str], Page],
) -> None:
    source = page("a thousand ranks").source
    rows = re.findall(r'<tr( class="strong")?><th scope="row">(\d+)</th>', source)
    assert [int(rank) for _, rank in rows] == list(range(1000))
    assert [rank for strong, rank in rows if strong] == ["17"]


def test_unmeasured_stages_are_marked(page: Callable[[str], Page]) -> None:
    document = page("host stamps only")
    cells = re.findall(r"<td>(.*?)</td>", document.source)
    # The ledger's five, six for each of two ranks, ten parts of the job.
    assert cells.count("not measured") == 5 + 4 + 2 * 6 + 10
    assert "These logs cannot show what holds the run back" in document.visible
    assert "These logs cannot show it." in document.visible
    assert document.all("svg") == []


@pytest.mark.parametrize("name", ["host stamps only, and a baseline", "a baseline without stages"])
def test_runs_without_stages_have_no_waterfall(name: str, page: Callable[[str], Page]) -> None:
    titles = [text for tag, text in page(name).texts if tag == "h2"]
    assert "Against the synthetic baseline" not in titles
    assert "Against the baselines" not in page(name).visible


def test_a_baseline_without_stages_is_not_measured(page: Callable[[str], Page]) -> None:
    cells = re.findall(r"<td>(.*?)</td>", page("a baseline without stages").source)
    assert cells.count("not measured") == (5 + 4) * 2


def test_an_error_is_shown_next_to_the_verdict(page: Callable[[str], Page]) -> None:
    text = page("rank 0 only").visible
    assert text.index("Only rank 0's log is here") < text.index("Step time: ")


@pytest.mark.parametrize("name", ["hostile names", "hostile names with stages"])
def test_names_from_logs_stay_text(name: str, page: Callable[[str], Page]) -> None:
    document = page(name)
    assert "<script>alert(1)</script>" in document.visible
    assert '"><img src=x onerror=alert(1)>' in document.visible
    assert "<img src=x onerror=alert(2)>.steps.csv: 1 torn" in document.visible


@pytest.mark.parametrize("name", ["hostile names", "hostile names with stages"])
def test_characters_that_hide_or_reorder_text_are_written_out(
    name: str, page: Callable[[str], Page]
) -> None:
    source = page(name).source
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", source)
    assert r"\u202eevil\u202c \u200bzero \u001b[31m red\u0007" in source


def test_hosts_and_run_names_are_isolated_from_the_text_around_them(
    page: Callable[[str], Page],
) -> None:
    tags = {tag for tag, text in page("hostile names with stages").texts if "onerror" in text}
    assert "bdi" in tags


def test_all_warnings_are_shown(
    page: Callable[[str], Page], case: Callable[[str], Analysis]
) -> None:
    visible = page("a torn line").visible
    assert case("a torn line").warnings[0] in visible
    # The verdict leads to them.
    first, second = visible.index("1 warning"), visible.index("Step time over the run")
    assert visible.index("No fault found") < first < second


def test_stragglers_have_a_table(page: Callable[[str], Page]) -> None:
    document = page("uneven work")
    assert "Stragglers" in [text for tag, text in document.texts if tag == "h2"]
    row = document.visible[document.visible.index("Costs per step") :]
    assert re.match(
        r"Costs per step rank 2 all the time; uneven work: 1\.50 times its peers' samples Compute "
        r"7\d\.\d ± 0\.\d ms 100% 7\d\.\d ± 0\.\d ms ",
        row,
    )
    alike = page("two ranks")
    assert "Stragglers" not in [text for tag, text in alike.texts if tag == "h2"]


def test_lateness_that_moves_around_blames_no_rank(page: Callable[[str], Page]) -> None:
    text = page("lateness that moves around").visible
    assert "Varying compute Compute varies from rank to rank and from step to step" in text
    assert "any rank varies from step to step Compute" in text
    assert "With no rank late at times" in text


def test_losses_are_shown_against_both_baselines(page: Callable[[str], Page]) -> None:
    text = page("everything").visible
    table = text[text.index("Of this run's step") :]
    assert re.match(
        r"Of this run's step Step on real data, 8 ranks \S+ ± \S+ 100% "
        r"Baseline: step on synthetic data, 8 ranks \S+ ± \S+ 9\d\.\d% "
        r"Step on synthetic data, 1 rank \S+ ± \S+ 8\d\.\d% "
        r"Lost to real data \+8\.\d+ ± \S+ 4\.\d% of it: input stall \+8\.\d+ ± \S+ 4\.\d% "
        r"of it: compute .* of it: work between steps .* of it: exposed allreduce .* "
        r"Waiting and allreduce in the baseline \+1\d\.\d ± .* Lost to scale \+1\d\.\d ± ",
        table,
    )
    assert "On one rank, ms" in text
    assert "Throughput lost 4." in text
    assert "Lost to scale +" not in page("a slow rank and a baseline").visible


def test_a_run_on_one_rank_is_shown_without_another_baseline(page: Callable[[str], Page]) -> None:
    text = page("one rank beside it").visible
    assert "On one rank, ms" in text
    assert "Run and run on one rank" in text
    assert "Against the baselines" not in text
    assert "Throughput lost" not in text


def test_answers_are_marked_as_extrapolated(page: Callable[[str], Page]) -> None:
    text = page("everything").visible
    first = text[: text.index("Step time: ")]
    assert re.search(r"What-if With 2× the bandwidth \(extrapolated\) 1\.0\d+×", first)
    assert re.search(r"On 64 ranks \(extrapolated\) 7\.\d\d× throughput [45]\.\d\d–7\.\d\d×", first)
    # No step saves time on more ranks.
    assert re.search(r"On 64 ranks \(extrapolated\) – 7\.\d\d× throughput", text)
    assert "from all bandwidth to all latency" in text
    assert "extrapolated" not in page("two ranks").visible


def test_facts_include_communication_clocks_and_steps(page: Callable[[str], Page]) -> None:
    text = page("everything").visible
    assert re.search(
        r"Communication 100 MB of gradients, 14\.\d+ ± \S+ ms exposed; effective bus bandwidth "
        r"at most 12\.\d GB/s, less if backward hides a part of it; at 6\.25 GB/s all of it "
        r"takes 28\.0 ms, 13\.\d ms of it hidden",
        text,
    )
    assert "Clocks aligned by the completions of allreduces; uncertain by" in text
    assert "Steps in the ledger" not in text
    assert re.search(
        r"that of host-1 was set by 50\.\d ms at step 200", page("a clock that was set").visible
    )
    assert re.search(
        r"Steps in the ledger 3\d\d of 400 steps, \d+ of them without some",
        page("rows lost").visible,
    )
    assert "Clocks one for all ranks" in page("two ranks").visible


def test_compute_slower_than_the_baselines_is_not_good_news(
    page: Callable[[str], Page],
) -> None:
    text = page("compute slower than the baseline's").visible
    assert "Compute is slower than in the baseline Compute is slower on all ranks" in text
    assert "as its baseline is" not in text
    assert "Nothing that is worth mentioning" not in text


def test_epochs_are_shown_if_there_are_no_steps(
    case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    page = Page(rendered("html", case("epochs only"), options))
    for text in ("ranks not known", "3 epochs", "at least 51.0 s", "17.00 ± 0.04 s", "Mean step"):
        assert text in page.visible
    assert "0 steps" not in page.visible
    assert "Ranks (0)" not in page.visible
    assert "Mean epoch" not in Page(rendered("html", case("two ranks"), options)).visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Do `a < b`, then `c`.", "Do <code>a &lt; b</code>, then <code>c</code>."),
        ("No pair: `<b>", "No pair: `&lt;b&gt;"),
        ("", ""),
    ],
)
def test_code_in_advice_looks_like_code_and_stays_text(text: str, shown: str) -> None:
    assert environment().from_string("{{ text|coded }}").render(text=text) == shown
