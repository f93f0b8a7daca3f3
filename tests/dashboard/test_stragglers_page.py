"""What the page of stragglers says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulator
from dash import no_update
from playwright.sync_api import expect
from support.step_logs import write_job

from stallscope.analysis import analyse
from stallscope.analysis.views.rank_maps import group_lateness, lateness_map, rows_of_ranks
from stallscope.charts import HEAT
from stallscope.charts.heat_map import lateness_chart
from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.app import view_at
from stallscope.dashboard.pages.stragglers_page import read_rate, search_with_rate
from stallscope.parsers import read
from stallscope.run import Run

from .browsing import NARROW, WIDE, Open, css_rgb, tab_stops
from .cases import IMAGE, JOBS, SLOW_RANK
from .content import assert_known_components, charts, components, of_type, table_rows, texts

_WITHOUT_PICTURE = ("one rank", "without stamps", "no steps")

JUMP = simulator.Job(
    ranks=16,
    ranks_per_host=4,
    steps=600,
    faults=[
        simulator.Fault("compute", 30, ranks=(4, 5, 6, 7), when=simulator.Between(300, 599), cv=0),
        simulator.Fault("input", 80, ranks=(9,), when=simulator.Bursts(40, 3)),
    ],
    run_id="jump",
)


@pytest.fixture(scope="module")
def jump(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A host that becomes slow in the middle, and a rank that is late at times."""
    folder = tmp_path_factory.mktemp("jump")
    simulator.write_logs(simulator.simulate(JUMP), folder)
    return RunStore(read(str(folder)))


def _page(store: RunStore, run_id: str, search: str = "") -> Any:
    return view_at(store, f"/run/{run_id}/stragglers", search).content


def test_the_first_sentence_says_who_makes_the_others_wait_and_what_that_costs(
    store: RunStore,
) -> None:
    said = texts(_page(store, "slow"))
    title = next(text for text in said if "makes the others wait" in text)
    assert re.fullmatch(
        r"Rank 2 makes the others wait all the time: its compute takes 1[12]\.\d+ ± \S+ ms longer "
        r"than its peers'",
        title,
    )
    cost = said[said.index(title) + 1]
    assert re.match(r"That costs 11\.\d+ ± \S+ ms of the step's 3[67]\.\d+ ms: 2[12]\.\d", cost)
    assert said.index(title) < said.index("Lateness over the run") < said.index("Stragglers", 14)


def test_no_rank_is_blamed_for_chance(store: RunStore) -> None:
    content = _page(store, "real")
    said = texts(content)
    assert "No stragglers: the remaining differences are random" in said
    assert any(text.startswith("The slowest of 4 ranks is always a little later") for text in said)
    assert charts(content)["lateness"].layout.annotations == ()
    assert "Price of a rank-hour" not in [
        getattr(component, "label", "") for component in components(content)
    ]


@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_run_has_the_page(name: str, named_run: Callable[[str], Run]) -> None:
    run = named_run(name)
    store = RunStore([run])
    content = _page(store, store.runs()[0].id)
    said = texts(content)
    assert "This page cannot be shown" not in said
    assert ("lateness" in charts(content)) is (name not in _WITHOUT_PICTURE)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("one rank", "A single rank does not wait for others"),
        ("without stamps", "These logs cannot show which rank is slow"),
        ("no steps", "These logs cannot show which rank is slow"),
        ("few steps", "These logs cannot show which rank is slow"),
    ],
)
def test_an_unknown_result_is_shown_with_its_reason(
    name: str, sentence: str, named_run: Callable[[str], Run]
) -> None:
    store = RunStore([named_run(name)])
    said = texts(_page(store, store.runs()[0].id))
    assert sentence in said
    reason = said[said.index(sentence) + 1]
    assert name == "one rank" or re.search("not measured|too few|no step", reason)


def test_ranks_without_logs_are_not_taken_for_punctual_ones(tmp_path: Path) -> None:
    for log in write_job(tmp_path, SLOW_RANK)[5:7]:
        log.unlink()
    said = texts(_page(RunStore(read(str(tmp_path))), "slow"))
    assert any(
        "Whether ranks 5 and 6 came late is not known: their logs are missing." in text
        for text in said
    )


@pytest.mark.broad
def test_a_thousand_ranks_share_rows_and_the_slow_one_keeps_its_own(
    named_run: Callable[[str], Run],
) -> None:
    content = _page(RunStore([named_run("a thousand ranks")]), "thousand")
    drawn = charts(content)["lateness"]
    rows, columns = drawn.data[0].z.shape
    assert rows <= 250
    assert columns <= 400
    row = next(at for at, name in enumerate(drawn.data[0].y) if name == "rank 700 on alpha")
    assert drawn.data[0].z[row].min() > 20
    assert "<b>rank 700</b>" in drawn.layout.yaxis.ticktext
    assert drawn.layout.height < 900


@pytest.mark.broad
def test_one_late_rank_of_a_thousand_is_visible_without_a_name(
    named_run: Callable[[str], Run],
) -> None:
    analysis = replace(
        RunStore([named_run("a thousand ranks")]).analysis("thousand"), stragglers=()
    )
    latest, mean = (lateness_chart(analysis, of_latest=of_latest) for of_latest in (True, False))
    assert latest is not None
    assert mean is not None
    row = next(at for at, candidate in enumerate(latest.rows) if candidate.label == "ranks 700–704")
    assert latest.values[row].min() > 20
    assert latest.values[row].min() > 2 * np.delete(latest.values, row, axis=0).max()
    assert latest.values[row].min() > 0.7 * latest.full
    assert mean.values[row].max() < 10
    assert np.nanmin(latest.values - mean.values) >= 0
    assert latest.cell == "the latest of up to 5 ranks"
    assert mean.cell == "the mean of up to 5 ranks"


@pytest.mark.broad
def test_the_content_of_cells_is_described_and_chosen_in_the_address(
    named_run: Callable[[str], Run],
) -> None:
    store = RunStore([named_run("a thousand ranks")])
    for query, cell in (
        ("", "the latest of up to 5 ranks"),
        ("?cells=latest", "the latest of up to 5 ranks"),
        ("?cells=mean&rate=2", "the mean of up to 5 ranks"),
        ("?cells=nonsense", "the latest of up to 5 ranks"),
    ):
        content = _page(store, "thousand", query)
        assert f"one cell: {cell}" in charts(content)["lateness"].data[0].hovertemplate
        assert any(f"each cell is {cell}" in text for text in texts(content))
        links = [
            anchor
            for anchor in of_type(content, "Anchor")
            if getattr(anchor, "className", "") == "cell-choice"
        ]
        (current,) = [anchor for anchor in links if getattr(anchor, "aria-current", None)]
        assert (current.children == "Mean of the ranks") is ("mean" in cell)
        assert ("rate=2" in links[0].href) is ("rate=2" in query)


def test_where_every_rank_has_a_row_there_is_nothing_to_choose(store: RunStore) -> None:
    links = of_type(_page(store, "slow"), "Anchor")
    assert not [anchor for anchor in links if getattr(anchor, "className", "") == "cell-choice"]


def test_cells_are_means_and_single_late_steps_do_not_vanish(jump: RunStore) -> None:
    steady = jump.analysis("jump").steady
    assert steady is not None
    lateness = lateness_map(steady, [[0], [9], [1, 2, 3]])
    assert lateness.mean.shape == (3, 400)
    reference = steady.of("arrival", steady.reference)
    late = (steady.arrival - reference[:, None]) / 1e6
    counts = lateness.edges[1:] - lateness.edges[:-1]
    assert (lateness.mean[1] * counts).sum() / counts.sum() == pytest.approx(late[:, 9].mean())
    assert lateness.most[1].max() == pytest.approx(late[:, 9].max())
    at = lateness.most[1].argmax()
    assert lateness.most_step[1, at] == late[:, 9].argmax()
    assert lateness.most_rank[1, at] == 9
    assert set(lateness.most_rank[2].tolist()) == {1, 2, 3}


def test_what_was_not_measured_has_no_value(tmp_path: Path) -> None:
    logs = write_job(tmp_path, replace(SLOW_RANK, ranks=16))
    lines = logs[3].read_text().splitlines(keepends=True)
    logs[3].write_text("".join(lines[:-60]))
    content = _page(RunStore(read(str(tmp_path))), "slow")
    cells, holes = charts(content)["lateness"].data
    assert all(value != value for value in cells.z[3][-50:])
    assert set(filter(None, holes.y)) == {"rank 3 on alpha"}
    assert "not measured" in texts(content)


@pytest.mark.parametrize(
    ("hosts", "ranks_per_host", "alone", "most"),
    [(1, 4, (), 200), (125, 8, (77, 900), 200), (1000, 1, (5,), 200), (2, 500, range(500), 200)],
)
def test_every_rank_is_in_one_row_and_hosts_are_not_mixed_needlessly(
    hosts: int, ranks_per_host: int, alone: tuple[int, ...], most: int
) -> None:
    names = [f"host-{rank // ranks_per_host}" for rank in range(hosts * ranks_per_host)]
    rows = rows_of_ranks(names, alone, most)
    assert sorted(rank for row in rows for rank in row) == list(range(len(names)))
    assert len(rows) <= 1.5 * most + 2 * min(len(alone), 40)
    if ranks_per_host > 1:
        assert all(len({names[rank] for rank in row}) == 1 for row in rows)
    if len(alone) < 40:
        assert all([rank] in rows for rank in alone)


def test_the_table_names_pattern_cause_and_cost(jump: RunStore) -> None:
    head, *rows = table_rows(_page(jump, "jump"), "Stragglers")
    assert head == [
        "Who",
        "Pattern",
        "Stage",
        "By how much",
        "Share of steps",
        "Costs per step",
        "Rank time in all",
    ]
    by_who = {row[0].partition(" (")[0]: row for row in rows}
    assert by_who["host-1"][2] == "Compute"
    assert by_who["rank 9"][1:3] == ["Bursts: at times", "Input"]
    assert "±" in by_who["rank 9"][5]


def test_a_price_makes_money_of_waiting(store: RunStore) -> None:
    (plain,) = table_rows(_page(store, "slow"), "Stragglers")[1:]
    content = _page(store, "slow", "?rate=3600&currency=EUR")
    head, row = table_rows(content, "Stragglers")
    assert head[-1] == "In money"
    # A rank-second costs 1 EUR.
    assert row[-1] == plain[-1].replace(" s", " EUR")
    assert table_rows(_page(store, "slow", "?rate=3600&currency=$"), "Stragglers")[1][-1][0] == "$"


@pytest.mark.parametrize("rate", ["", "abc", "-1", "0", "nan", "inf", "1e300", IMAGE])
def test_an_impossible_price_is_reported_and_not_used(store: RunStore, rate: str) -> None:
    assert read_rate({"rate": rate}) is None
    content = view_at(store, "/run/slow/stragglers", f"?rate={rate}").content
    (entry,) = of_type(content, "NumberInput")
    assert entry.value == ""
    assert bool(entry.error) is bool(rate)
    assert "In money" not in texts(content)


def test_typing_a_price_changes_the_address_and_nothing_else() -> None:
    assert search_with_rate(2.5, "EUR", "?baseline=b") == "?baseline=b&rate=2.5&currency=EUR"
    assert search_with_rate("", "", "?rate=2.5&currency=EUR") == ""
    assert search_with_rate(2.5, "EUR", "?rate=2.50&currency=EUR") is no_update
    assert search_with_rate("", "", "?rate=abc") is no_update
    assert search_with_rate(1, "a\nb&c=<d>efgh", "") == "?rate=1&currency=a+b%26c%3D%3Cd"


def test_hosts_are_listed_with_named_ones_first(jump: RunStore) -> None:
    head, *rows = table_rows(_page(jump, "jump"), "Hosts")
    assert head[:3] == ["Host", "Named", "Ranks"]
    assert [row[:3] for row in rows] == [
        ["host-1", "the host", "4"],
        ["host-2", "rank 9", "4"],
        ["host-0", "–", "4"],
        ["host-3", "–", "4"],
    ]
    assert sum(float(row[4].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.3)
    assert {row[5] for row in rows} == {"25.0%"}


def test_places_in_the_mesh_are_listed_with_slow_ones_first() -> None:
    faults = [simulator.Fault("compute", 30, ranks=(4, 5, 6, 7))]
    run = simulator.simulate(simulator.Job(ranks=8, steps=300, faults=faults, run_id="mesh")).run
    logs = []
    for log in run.logs:
        replica = {"name": "replica", "first": log.rank % 4, "stride": 4, "size": 2}
        logs.append(replace(log, facts={**log.facts, "groups": [replica]}))
    content = _page(RunStore([replace(run, logs=tuple(logs))]), "mesh")
    head, *rows = table_rows(content, "Places in replica")
    assert head[:3] == ["Place", "Named", "Ranks"]
    assert [row[:3] for row in rows] == [["replica 1", "the place", "4"], ["replica 0", "–", "4"]]
    assert rows[0][4] == "100%"
    assert any(
        "All of replica 1 (ranks 4, 5, 6 and 7) make the others wait" in text
        for text in texts(content)
    )


def test_a_hosts_lateness_is_that_of_its_ranks_in_steps_they_measured(tmp_path: Path) -> None:
    logs = write_job(tmp_path, replace(SLOW_RANK, ranks=16))
    lines = logs[3].read_text().splitlines(keepends=True)
    logs[3].write_text("".join(lines[:-60]))
    analysis = analyse(read(str(tmp_path))[0])
    steady = analysis.steady
    assert steady is not None
    alpha, beta = group_lateness(steady, [rank.host for rank in analysis.ranks])
    assert alpha.late_ms.value == pytest.approx(12 / 8, rel=0.05)
    assert abs(beta.late_ms.value) < 0.1
    assert alpha.critical_share > 0.99


def test_changes_lead_to_their_steps(jump: RunStore) -> None:
    content = _page(jump, "jump")
    links = [anchor for anchor in of_type(content, "Anchor") if anchor.children.startswith("Step ")]
    assert [anchor.href for anchor in links] == ["/run/jump/step/300"]
    assert any("most of it waiting for slow ranks (+" in text for text in texts(content))


def test_links_keep_the_baseline(tmp_path: Path) -> None:
    jobs = {"jump": tmp_path / "jump", "base": tmp_path / "base"}
    for name, folder in jobs.items():
        job = replace(JUMP, run_id=name, faults=JUMP.faults if name == "jump" else ())
        simulator.write_logs(simulator.simulate(job), folder)
    store = RunStore([read(str(folder))[0] for folder in jobs.values()])
    content = view_at(store, "/run/jump/stragglers", "?baseline=base").content
    links = [anchor.href for anchor in of_type(content, "Anchor") if anchor.children == "Step 300"]
    assert links == ["/run/jump/step/300?baseline=base"]


def test_hostile_names_are_text(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("hostile names")])
    key = store.runs()[0].id
    content = _page(store, key, f"?rate=1&currency={IMAGE}")
    assert [row[0] for row in table_rows(content, "Hosts")[1:]] == [IMAGE, "<b>beta</b>&amp;"]
    drawn = charts(content)["lateness"]
    said = [
        *drawn.data[0].y,
        *drawn.layout.yaxis.ticktext,
        *(a.text for a in drawn.layout.annotations),
    ]
    assert not any("<img" in text or "<b>beta" in text for text in said)
    assert_known_components(content)


def test_light_and_dark_pages_share_the_figure(store: RunStore) -> None:
    stores = of_type(_page(store, "slow"), "Store")
    (figure,) = [component.data for component in stores if component.id["name"] == "lateness"]
    assert set(figure) == {"data", "layout", "csv"}
    scale = [colour for _, colour in figure["layout"]["coloraxis"]["colorscale"]]
    assert scale == [f"light-dark({colour.light}, {colour.dark})" for colour in HEAT]


def test_the_app_takes_the_pages_callbacks(store: RunStore) -> None:
    assert any("search" in key for key in create_app(store).callback_map)


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_the_heat_map_is_drawn_in_the_colours_of_the_system(
    open_page: Open, scheme: str, width: int
) -> None:
    page = open_page("/run/slow/stragglers", scheme=scheme, width=width)
    picture = page.get_by_role("figure", name=re.compile("^Lateness over the run"))
    picture.locator(".heatmaplayer image").wait_for()
    assert len(picture.locator(".ytick").all()) == 8
    expect(picture.locator(".annotation").filter(has_text="◀")).to_have_count(1)
    scale = page.locator(".heat-scale")
    first, last = (css_rgb(getattr(HEAT[at], scheme)) for at in (0, -1))
    expect(scale).to_have_css("background-image", re.compile(re.escape(first)))
    expect(scale).to_have_css("background-image", re.compile(re.escape(last)))
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_under_the_pointer_stand_mean_and_latest_step(open_page: Open) -> None:
    page = open_page("/run/slow/stragglers")
    page.locator(".heatmaplayer image").wait_for()
    box = page.locator("#page .nsewdrag").bounding_box()
    assert box is not None
    row = box["y"] + box["height"] * 2.5 / 8
    page.mouse.move(box["x"] + box["width"] / 2 - 3, row)
    page.mouse.move(box["x"] + box["width"] / 2, row)
    hover = page.locator("#page .hoverlayer")
    expect(hover).to_contain_text(re.compile(r"rank 2 on alpha, around step 1\d\d"))
    expect(hover).to_contain_text(re.compile(r"1\d\.\d\d ms at most: rank 2 at step 1\d\d"))


@pytest.mark.browser
def test_a_price_is_typed_and_stays_in_the_address(open_page: Open) -> None:
    page = open_page("/run/slow/stragglers")
    price = page.get_by_role("textbox", name="Price of a rank-hour")
    page.get_by_role("link", name="Log health").focus()
    while "Price of a rank-hour" not in tab_stops(page, 1)[0]:
        pass
    expect(price).to_be_focused()
    page.keyboard.type("2.5")
    page.keyboard.press("Tab")
    expect(page).to_have_url(re.compile(r"/run/slow/stragglers\?rate=2\.5$"))
    expect(page.get_by_role("columnheader", name="In money")).to_be_visible()
    currency = page.get_by_role("textbox", name="Currency")
    expect(currency).to_be_focused()
    page.keyboard.type("EUR")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"rate=2\.5&currency=EUR$"))
    expect(page.get_by_role("cell", name=re.compile(r"EUR$"))).to_be_visible()
    page.reload()
    expect(page.get_by_role("textbox", name="Price of a rank-hour")).to_have_value("2.5")
