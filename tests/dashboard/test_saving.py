"""What leaves the dashboard as a file, clicked for in a real Chromium: pictures, numbers, reports."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Download, Locator, Page, expect
from simulator import Fault, Job, simulate

from stallscope.charts import COLOURS
from stallscope.charts.heat_map import lateness_chart
from stallscope.dashboard import RunStore
from stallscope.run import Run

from .browsing import NARROW, WIDE, Open, opening, served, tab_stops
from .cases import IMAGE, SCRIPT, THOUSAND

pytestmark = pytest.mark.browser

RANKS = 8
SVG = "{http://www.w3.org/2000/svg}"
LANES = "Ranks over time"

# Lanes of noise, the most that a screen shows: no two cells are alike.
_SIZE_OF_MOST = """([lanes, high, cells, bars]) => {
    const timeline = window.stallscopeTimeline;
    const times = [...Array(cells).keys()];
    const noise = (length) => Float32Array.from({ length: length }, () => 1 + Math.random());
    const answer = {
        cells: cells, lanes: lanes, edges: [...Array(lanes + 1).keys()],
        cellBegin: times, cellEnd: times.map((time) => time + 1), allreduce: noise(cells),
        stages: [0, 1, 2, 3].map(() => noise(lanes * cells)), latest: noise(lanes * cells),
    };
    const plot = { left: 170, top: 82, width: 1100, height: lanes * high };
    const head = {
        ranks: answer.edges, hosts: ["alpha"], hostOf: answer.edges.map(() => 0),
    };
    const scene = {
        answer: answer, bars: bars, head: head, plot: plot,
        view: { begin: 0, end: cells, first: 0, last: lanes },
        x: (time) => plot.left + time * plot.width / cells,
    };
    const colours = ["#112233", "#445566", "#778899", "#aabbcc", "#ddeeff"].map(timeline.packed);
    const inks = { lateness: false, lateFrom: 1.9, colours: colours, late: 0, blank: 0 };
    const pen = timeline.pen(1300, 800, "title", "12px sans-serif");
    timeline.lanes(pen, scene, inks);
    return pen.file().size;
}"""


@pytest.fixture(scope="module")
def runs(named_run: Callable[[str], Run]) -> RunStore:
    names = ("four ranks", "a slow rank", "hostile names", "a thousand ranks")
    fault = Fault("compute", 40.0, ranks=(93,))
    hosts = Job(ranks=512, steps=120, faults=(fault,), run_id="many-hosts")
    return RunStore([*(named_run(name) for name in names), simulate(hosts).run])


@pytest.fixture(scope="module")
def address(runs: RunStore) -> Iterator[str]:
    with served(runs) as url:
        yield url


@pytest.fixture(scope="module")
def overview(context: BrowserContext, address: str) -> Iterator[Page]:
    """Open a run's first page, once for all tests that only save from it."""
    with opening(context, address) as open_page:
        yield open_page("/run/slow")


def card(page: Page, title: str) -> Locator:
    heading = page.get_by_role("heading", level=2, name=title, exact=True)
    element = page.locator(".chart-card").filter(has=heading)
    expect(element.locator(".trace, .hm, canvas").first).to_be_attached()
    return element


def saved(page: Page, title: str, kind: str) -> Download:
    with page.expect_download() as download:
        card(page, title).get_by_role("button", name=f"Save as {kind}").click()
    return download.value


def content(download: Download) -> bytes:
    return Path(download.path()).read_bytes()


def table(download: Download) -> list[dict[str, str]]:
    text = content(download).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def size_of_png(data: bytes) -> tuple[int, int]:
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_a_chart_is_saved_as_it_is_seen(open_page: Open, scheme: str, width: int) -> None:
    page = open_page("/run/slow", scheme=scheme, width=width)
    title = "Ranks side by side"
    picture = saved(page, title, "PNG")
    assert picture.suggested_filename == "resnet-with-a-slow-rank-ranks-side-by-side.png"
    assert size_of_png(content(picture))[0] >= 1400
    svg = content(saved(page, title, "SVG")).decode()
    assert svg.startswith("<svg")
    assert title in svg
    assert "Waiting for slow ranks" in svg
    red, green, blue = bytes.fromhex(getattr(COLOURS["compute"], scheme)[1:])
    assert f"rgb({red}, {green}, {blue})" in svg


def test_the_numbers_behind_a_chart_have_units(overview: Page, runs: RunStore) -> None:
    lines = table(saved(overview, "Ranks side by side", "CSV"))
    analysis = runs.analysis("slow")
    assert {line["bar"] for line in lines} == {
        f"rank {rank.rank} · {rank.host}" for rank in analysis.ranks
    }
    slow = next(line for line in lines if line["bar"].startswith("rank 2 "))
    assert float(slow["Compute, ms"]) == pytest.approx(analysis.ranks[2].compute_ms, rel=1e-5)

    over_time = table(saved(overview, "Step time over the run", "CSV"))
    assert analysis.steady is not None
    assert [int(line["step"]) for line in over_time] == analysis.steady.steps.tolist()
    assert float(over_time[0]["Input, ms"]) == pytest.approx(
        analysis.steady.by_cause("input")[0] / 1e6, rel=1e-5
    )


def test_a_zoomed_picture_is_saved_zoomed(overview: Page) -> None:
    title = "Step time over the run"
    graph = card(overview, title).locator(".js-plotly-plot")
    graph.evaluate("graph => Plotly.relayout(graph, {'xaxis.range': [100, 120]})")
    svg = content(saved(overview, title, "SVG")).decode()
    graph.evaluate("graph => Plotly.relayout(graph, {'xaxis.autorange': true})")
    assert re.findall(r">(?:step )?(1[01]\d)<", svg)
    assert ">200<" not in svg


def test_a_heat_map_gives_the_numbers_of_its_cells(open_page: Open, runs: RunStore) -> None:
    page = open_page("/run/slow/stragglers")
    lines = table(saved(page, "Lateness over the run", "CSV"))
    chart = lateness_chart(runs.analysis("slow"))
    assert chart is not None
    assert len(lines) == chart.values.size
    late = np.array([float(line["late on average, ms"]) for line in lines]).reshape(
        chart.values.shape
    )
    assert np.allclose(late, chart.values, rtol=1e-5, atol=1e-5)
    assert (lines[0]["ranks"], lines[0]["host"]) == (chart.rows[0].label, chart.rows[0].group)
    assert int(lines[0]["first step"]) == chart.edges[0] + 0.5
    assert size_of_png(content(saved(page, "Lateness over the run", "PNG")))[1] > 400


def test_the_timeline_gives_what_is_looked_at(open_page: Open, runs: RunStore) -> None:
    page = open_page("/run/slow/timeline?from=100&to=119&ranks=2-3")
    title = "Ranks over time"
    lines = table(saved(page, title, "CSV"))
    assert {line["ranks"] for line in lines} == {"rank 2", "rank 3"}
    assert {int(line["first step"]) for line in lines} == set(range(100, 120))
    ledger = runs.analysis("slow").ledger
    assert ledger is not None
    at = int(np.flatnonzero(ledger.steps == 100)[0])
    compute = ledger.compute[at, ledger.ranks.index(2)] / 1e6
    assert float(lines[0]["Compute, ms"]) == pytest.approx(compute, rel=1e-4)
    width, height = size_of_png(content(saved(page, title, "PNG")))
    assert width > 1000
    assert height > 250


def test_a_thousand_ranks_are_saved(open_page: Open) -> None:
    page = open_page(f"/run/{THOUSAND.run_id}/timeline")
    lines = table(saved(page, "Ranks over time", "CSV"))
    assert {len(line) for line in lines} == {16}
    assert lines[0]["ranks"].startswith("ranks 0–")


def drawing(download: Download) -> ET.Element:
    """An SVG's root, once it is sure that it is nothing but a drawing."""
    root = ET.fromstring(content(download))
    assert root.tag == f"{SVG}svg"
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "g", "rect", "path", "text", "clipPath")
    }
    assert not [
        name
        for element in root.iter()
        for name in element.attrib
        if "href" in name or name[:2] == "on"
    ]
    return root


def words(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def lanes(root: ET.Element) -> list[ET.Element]:
    return [element for element in root.iter(f"{SVG}g") if element.get("class") == "lane"]


def fills(parent: ET.Element) -> set[str]:
    return {
        element.attrib["fill"] for element in parent.iter(f"{SVG}path") if "fill" in element.attrib
    }


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_the_timeline_is_saved_as_a_drawing(open_page: Open, scheme: str, width: int) -> None:
    page = open_page("/run/slow/timeline?from=60&to=84", scheme=scheme, width=width)
    download = saved(page, LANES, "SVG")
    assert download.suggested_filename == "resnet-with-a-slow-rank-ranks-over-time.svg"
    root = drawing(download)
    drawn_lanes = lanes(root)
    assert [lane[0].text for lane in drawn_lanes] == [
        f"Rank {rank}, {host}" for rank, host in enumerate(["alpha"] * 4 + ["beta"] * 4)
    ]
    for lane in drawn_lanes:
        colours = {getattr(COLOURS[name], scheme) for name in ("input", "compute", "allreduce")}
        assert colours <= fills(lane)
    said = words(root)
    names = {f"rank {rank}" for rank in range(8) if rank != 2} | {"slow ▸ 2", "alpha", "beta"}
    assert names <= set(said) if width == WIDE else "▸2" in said
    assert {"Compute", "Waiting for slow ranks", "Validation"} <= set(said)
    assert ("epoch 1" in said) is (width == WIDE)
    assert sum(bool(re.fullmatch(r"[\d.]+ s", text)) for text in said) >= 2
    assert said[0].startswith("resnet with a slow rank"[:20])
    background = root.find(f"{SVG}rect")
    assert background is not None
    assert background.get("fill") == ("#ffffff" if scheme == "light" else "#25262b")


def test_a_drawing_of_the_timeline_keeps_proportions(open_page: Open, runs: RunStore) -> None:
    page = open_page("/run/slow/timeline?from=100&to=103&ranks=2-2")
    (lane,) = lanes(drawing(saved(page, LANES, "SVG")))
    wide = {
        path.attrib["fill"]: sum(map(int, re.findall(r"h(\d+)", path.attrib["d"])))
        for path in lane.iter(f"{SVG}path")
    }
    compute, allreduce, wait = (
        wide.get(COLOURS[name].light, 0) for name in ("compute", "allreduce", "wait")
    )
    ledger = runs.analysis("slow").ledger
    assert ledger is not None
    first = int(np.flatnonzero(ledger.steps == 100)[0])
    computed = ledger.compute[first : first + 4, ledger.ranks.index(2)].sum()
    share = computed / ledger.entry("allreduce")[first : first + 4].sum()
    assert compute / allreduce == pytest.approx(share, rel=0.02)
    # The slow rank waits for nobody.
    assert wait < 0.02 * compute


def test_a_lane_of_several_hosts_names_the_host_of_its_slow_rank(open_page: Open) -> None:
    page = open_page("/run/many-hosts/timeline")
    root = drawing(saved(page, LANES, "SVG"))
    assert any(re.match(r"Ranks \d+–\d+, 2 hosts", lane[0].text or "") for lane in lanes(root))
    said = words(root)
    assert "slow ▸ 93" in said
    assert "host-11" in said
    assert "host-10" not in said
    # Nothing validates, and nothing is saved.
    assert not {"Validation", "Checkpoints"} & set(said)


def test_lateness_is_drawn_as_it_is_seen(open_page: Open) -> None:
    page = open_page(f"/run/{THOUSAND.run_id}/timeline?show=lateness")
    root = drawing(saved(page, LANES, "SVG"))
    assert len(lanes(root)) > 20
    assert COLOURS["compute"].light not in set().union(*map(fills, lanes(root)))
    assert any("later or more" in text for text in words(root))


def test_the_largest_drawing_can_be_mailed(open_page: Open) -> None:
    page = open_page("/run/slow/timeline")
    # Lanes that are very low, low, high, and with bars side by side.
    for most in (
        (140, 4, 1100, False),
        (51, 12, 1100, False),
        (31, 20, 1100, False),
        (140, 4, 122, True),
    ):
        assert page.evaluate(_SIZE_OF_MOST, list(most)) < 3_000_000, most


def test_the_buttons_are_reached_by_keyboard(overview: Page) -> None:
    title = "Ranks side by side"
    group = card(overview, title).get_by_role("group", name=f"Save: {title}")
    expect(group).to_be_visible()
    group.get_by_role("button", name="Save as PNG").focus()
    assert tab_stops(overview, 2) == ["Save as SVG", "Save as CSV"]
    with overview.expect_download() as download:
        overview.keyboard.press("Enter")
    assert download.value.suggested_filename.endswith("ranks-side-by-side.csv")


def test_a_run_is_taken_out_of_the_dashboard(open_page: Open, runs: RunStore) -> None:
    page = open_page("/run/real?baseline=slow")
    actions = page.get_by_role("group", name="Save or share this run")
    with page.context.expect_page() as opened:
        actions.get_by_role("link", name="Report").click()
    report = opened.value
    expect(report).to_have_url(re.compile(r"/download/real/report\?baseline=slow$"))
    expect(report.get_by_role("heading", level=1)).to_have_text(re.compile("resnet on pictures"))
    expect(report.get_by_text("Against a run on real data").first).to_be_visible()

    with page.expect_download() as download:
        actions.get_by_role("link", name="JSON").click()
    assert download.value.suggested_filename == "resnet-on-pictures.json"
    document = json.loads(content(download.value))
    assert document["run"]["id"] == "real"
    assert document["baseline"]["id"] == "slow"


def test_a_trace_is_one_that_perfetto_reads(overview: Page) -> None:
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    with overview.expect_download() as download:
        overview.get_by_role("link", name="Perfetto").click()
    assert download.value.suggested_filename == "resnet-with-a-slow-rank.pftrace"
    trace = protos.Trace()
    trace.ParseFromString(content(download.value))
    assert len(trace.packet) > 0


def test_the_address_is_copied_with_what_was_chosen(open_page: Open) -> None:
    page = open_page("/run/real/timeline?from=20&to=40&baseline=slow")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # Until the timeline is drawn, which writes the address as it is read back.
    expect(page.locator("#timeline")).to_have_attribute("aria-busy", "false")
    copy = page.get_by_role("button", name="Copy address")
    copy.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url
    assert "from=20" in copied
    expect(copy).to_be_visible()


def test_hostile_names_stay_text_in_files(open_page: Open, runs: RunStore) -> None:
    key = next(run.id for run in runs.runs() if run.entry.name == SCRIPT)
    page = open_page(f"/run/{key}")
    picture = saved(page, "Ranks side by side", "SVG")
    assert re.fullmatch(r"[a-z0-9._-]+", picture.suggested_filename)
    svg = content(picture).decode()
    assert "<img" not in svg
    assert "<script" not in svg


def test_hostile_names_stay_text_in_the_drawn_timeline(open_page: Open, runs: RunStore) -> None:
    key = next(run.id for run in runs.runs() if run.entry.name == SCRIPT)
    root = drawing(saved(open_page(f"/run/{key}/timeline"), LANES, "SVG"))
    assert words(root)[0] == f"{SCRIPT}: ranks over time"
    assert lanes(root)[0][0].text == f"Rank 0, {IMAGE}"
    assert any(text.startswith("<b>be") for text in words(root))
