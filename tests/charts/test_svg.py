"""Charts in reports: right lengths, nothing outside the frame, readable without scripts."""

from __future__ import annotations

import colorsys
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from stallscope.analysis.views.machine_series import ValueColumns
from stallscope.arrays.stats import Mean
from stallscope.charts import COLOURS, HEAT
from stallscope.charts.axis import Axis
from stallscope.charts.chart_kinds import Bar, Segment, StackedArea, StackedBars, Waterfall
from stallscope.charts.charts import Chart
from stallscope.charts.compared_bars import ComparedBars
from stallscope.charts.curves import EfficiencyLine, EfficiencyLines
from stallscope.charts.heat_map import HeatMap, HeatMapRow
from stallscope.charts.step_time import OverTime
from stallscope.charts.svg import NARROW, WIDE, draw, stylesheet
from stallscope.formatting.sums import SumColumn

NS = "{http://www.w3.org/2000/svg}"
STAGES = ("input", "compute", "other", "imbalance", "allreduce")


def bars(*values: tuple[float, ...], unit: str = "ms") -> StackedBars:
    stacks = tuple(
        Bar(f"rank {index}", tuple(map(Segment, STAGES, lengths)), emphasised=index == 1)
        for index, lengths in enumerate(values)
    )
    return StackedBars("Ranks", "What ranks do.", unit, stacks)


def area(steps: int, *means: float) -> StackedArea:
    layers = tuple((name, np.full(steps, mean)) for name, mean in zip(STAGES, means, strict=False))
    marks = ((0.0, "epoch 0"), (1.0, "epoch 1"), (steps / 2, "epoch 2"))
    return StackedArea(
        "Steps", "Over the run.", "ms", "step", np.arange(steps, dtype=np.float64), layers, marks
    )


def waterfall(start: float, *changes: float) -> Waterfall:
    return Waterfall(
        "Against the baseline",
        "Slower.",
        "ms",
        ("baseline", start),
        tuple(map(Segment, STAGES, changes)),
        ("this run", start + sum(changes)),
        SumColumn.of(changes, start + sum(changes)),
        start,
    )


def over_time(level: float, hole: bool = False) -> OverTime:
    """Make a mean within a range of ten, with a hole in the middle on request."""
    mean = np.full(100, level)
    if hole:
        mean[40:60] = np.nan
    columns = ValueColumns(mean - 5, mean, mean + 5)
    return OverTime("Busy", "How busy.", "%", 100.0, np.linspace(-5.0, 700.0, 100), columns)


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours as in WCAG 2, from 1 to 21."""
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def heat(rows: int, columns: int, full: float = 10.0, *, hole: bool = False) -> HeatMap:
    """Make values that grow from the first row to the last, with a hole in the first row on request."""
    values = np.repeat(np.linspace(0.0, full, rows)[:, None], columns, axis=1)
    if hole:
        values[0, columns // 2 :] = np.nan
    return HeatMap(
        title="Late",
        sentence="Who is.",
        unit="ms",
        x_label="step",
        rows=tuple(
            HeatMapRow(f"rank {row}", f"host {row // 8}", row == rows - 1) for row in range(rows)
        ),
        edges=np.arange(columns + 1.0) - 0.5,
        values=values,
        most=values,
        most_at=np.tile(np.arange(float(columns)), (rows, 1)),
        most_of=np.repeat(np.arange(float(rows))[:, None], columns, axis=1),
        full=full,
        marks=((-0.5, "epoch 0"), (columns / 2, "epoch 1")),
        changes=((columns / 2, "+10.0 ms"),),
    )


def compared(*groups: tuple[Mean | None, ...]) -> ComparedBars:
    series = ("this run", "baseline", "one rank")[: len(groups[0])] if groups else ()
    named = tuple(zip(STAGES, groups, strict=False))
    return ComparedBars("Stages", "Beside each other.", "ms", series, named)


PUBLISHED = ("Inception V3, HorovodRunner", "VGG-16, HorovodRunner")


def efficiencies(*published: str) -> EfficiencyLines:
    points = ((1, Mean(1.0, None)), (8, Mean(0.8, (0.7, 0.9))))
    others = (EfficiencyLine(name, points, others=True) for name in published)
    return EfficiencyLines(
        "Efficiency", "Of this job.", (EfficiencyLine("this job", points), *others)
    )


CHARTS = {
    "one bar": bars((1.0, 30.0, 2.0, 3.0, 6.0)),
    "two bars": bars((1.0, 30.0, 2.0, 3.0, 6.0), (1.0, 20.0, 0.0, 0.0, 6.0)),
    "four bars": bars(*[(1.0, 30.0, 2.0, 3.0, 6.0)] * 4),
    "32 bars": bars(*[(1.0, 30.0, 2.0, 3.0, 6.0)] * 32),
    "bars of nothing": bars((0.0, 0.0, 0.0, 0.0, 0.0), ()),
    "no bars": bars(),
    "microseconds": bars((1e-6, 2e-6, 0.0, 0.0, 3e-6), (0.0, 0.0, 0.0, 0.0, 0.0)),
    "days": bars((1e9, 2e9, 1.0, 1e-3, 3e9)),
    "a bar with NaN": bars((float("nan"), 30.0, float("inf"), -2.0, 6.0)),
    "area": area(300, 1.0, 30.0, 2.0, 3.0, 6.0),
    "area of one point": area(1, 1.0, 30.0),
    "area of nothing": area(5, 0.0, 0.0),
    "area without points": area(0, 1.0, 2.0),
    "area without layers": area(5),
    "waterfall": waterfall(41.0, 3.0, -0.6, 0.0, 10.6, 1e-5),
    "waterfall below zero": waterfall(10.0, -4.0, -9.0, 0.0, 12.0, 0.5),
    "waterfall of nothing": waterfall(0.0, 0.0, 0.0),
    "waterfall without changes": waterfall(5.0),
    "compared": compared(
        (Mean(9.0, (8.5, 9.5)), Mean(0.4, None)), (Mean(20.0, (19.0, 21.0)), None)
    ),
    "compared below zero": compared((Mean(-1.0, (-3.0, 1.0)), Mean(float("nan"), None))),
    "compared with nothing": compared((None, None, None)),
    "nothing compared": compared(),
    "heat map": heat(8, 50),
    "heat map of two ranks": heat(2, 1),
    "heat map of many ranks": heat(128, 100),
    "heat map with a hole": heat(4, 20, hole=True),
    "heat map of nothing": heat(4, 20, full=0.0),
    "over time": over_time(80.0),
    "over time with a hole": over_time(80.0, hole=True),
    "over time, nothing at all": over_time(float("nan")),
    "efficiencies": efficiencies(),
    "published efficiencies": efficiencies(*PUBLISHED),
}

everywhere = pytest.mark.parametrize("width", [WIDE, NARROW])
every_chart = pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS.keys())


def drawn(chart: Chart, width: int = WIDE) -> ElementTree.Element:
    return ElementTree.fromstring(draw(chart, "key", width))


def boxes(svg: ElementTree.Element, stage: str) -> list[ElementTree.Element]:
    """Return the rectangles of a stage, without those of the legend."""
    return [
        box
        for box in svg.iter(f"{NS}rect")
        if f"fill-{stage}" in box.get("class", "").split() and box.find(f"{NS}title") is not None
    ]


def tips(svg: ElementTree.Element) -> list[str]:
    return [title.text or "" for title in svg.iter(f"{NS}title")][1:]


def texts(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{NS}text")]


def span(box: ElementTree.Element) -> tuple[float, float]:
    x = float(box.get("x", "nan"))
    return x, x + float(box.get("width", "nan"))


@everywhere
@every_chart
def test_a_screen_reader_gets_title_and_description(chart: Chart, width: int) -> None:
    svg = drawn(chart, width)
    assert svg.get("role") == "img"
    named = {element.get("id"): element.text for element in svg if element.get("id")}
    heard = [named[key] for key in svg.get("aria-labelledby", "").split()]
    assert heard == [chart.title, chart.sentence]


@everywhere
@every_chart
def test_nothing_is_drawn_outside_the_chart(chart: Chart, width: int) -> None:
    svg = drawn(chart, width)
    _, _, right, bottom = map(float, svg.get("viewBox", "").split())
    assert right == width
    for box in svg.iter(f"{NS}rect"):
        x, end = span(box)
        assert 0 <= x <= end <= right
        assert 0 <= float(box.get("y", "nan")) + float(box.get("height", "nan")) <= bottom
    for text in svg.iter(f"{NS}text"):
        assert 0 <= float(text.get("x", "nan")) <= right
        assert 0 <= float(text.get("y", "nan")) <= bottom
    for path in svg.iter(f"{NS}path"):
        whole = re.sub(r"M(\S+) (\S+)H(\S+?)(?=M|$)", r"M\1 \2L\3 \2", path.get("d", ""))
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", whole)]
        assert all(0 <= x <= right for x in numbers[::2])
        assert all(0 <= y <= bottom for y in numbers[1::2])


@everywhere
@every_chart
def test_charts_need_neither_scripts_nor_the_network(chart: Chart, width: int) -> None:
    drawn_with = {element.tag.removeprefix(NS) for element in drawn(chart, width).iter()}
    shapes = {"rect", "line", "path", "circle", "text"}
    assert drawn_with <= {"svg", "title", "desc", "g"} | shapes
    attributes = {name for element in drawn(chart, width).iter() for name in element.attrib}
    assert not {name for name in attributes if "href" in name or name.startswith(("on", "style"))}


@everywhere
@every_chart
def test_no_number_is_nan_or_endless(chart: Chart, width: int) -> None:
    assert not re.search(r"nan|inf\b|e[+-]\d", draw(chart, "key", width), re.IGNORECASE)


@every_chart
def test_every_class_has_a_rule(chart: Chart) -> None:
    rules = stylesheet()
    used = {word for element in drawn(chart).iter() for word in element.get("class", "").split()}
    assert {word for word in used if f".{word}" not in rules} == set()


def test_segments_are_as_long_as_their_values() -> None:
    svg = drawn(bars((1.0, 30.0, 2.0, 3.0, 6.0), (10.0, 20.0, 0.0, 0.0, 6.0)))
    (first, second) = (span(box) for box in boxes(svg, "compute"))
    # There is a gap of one pixel between segments.
    assert (first[1] - first[0] + 1) / 30 == pytest.approx(
        (second[1] - second[0] + 1) / 20, rel=1e-3
    )
    (start, end) = span(boxes(svg, "input")[1])
    assert end + 1 == pytest.approx(second[0], abs=0.02)
    assert start < end


def test_a_segment_shows_name_value_interval_and_share() -> None:
    chart = StackedBars(
        "t",
        "s",
        "ms",
        (Bar("this run", (Segment("input", 10.0, (9.4, 10.6)), Segment("other", 30.0))),),
    )
    assert tips(drawn(chart)) == [
        "Input\n10.0 ms, 25.0% of 40.0 ms\n95% interval: 9.40–10.60 ms\nthis run",
        "Other\n30.0 ms, 75.0% of 40.0 ms\nthis run",
    ]


def test_a_zero_is_not_drawn_but_is_in_the_legend() -> None:
    svg = drawn(bars((1.0, 30.0, 0.0, 3.0, 6.0)))
    assert boxes(svg, "other") == []
    assert "Other 0.0 ms" in texts(svg)


def test_values_are_inside_segments_only_where_they_fit() -> None:
    wide, narrow = (
        drawn(bars(*[(1.0, 30.0, 2.0, 3.0, 6.0)] * 2)),
        drawn(bars(*[(1.0, 30.0, 2.0, 3.0, 6.0)] * 2), NARROW),
    )
    assert texts(wide).count("30.0 ms") == texts(narrow).count("30.0 ms") == 2
    assert "6.0 ms" not in texts(narrow)
    assert "6.0" in texts(wide)
    assert "1.00" not in texts(wide)


def test_a_named_rank_stands_out() -> None:
    svg = drawn(bars(*[(1.0, 30.0, 2.0, 3.0, 6.0)] * 4))
    strong = [text.text for text in svg.iter(f"{NS}text") if text.get("class") == "strong"]
    assert strong == ["rank 1", "42.0 ms"]
    assert "straggler" in texts(svg)
    assert [box.get("class") for box in svg.iter(f"{NS}rect")].count("band") == 1


def test_labels_are_text_and_not_markup() -> None:
    label = '<script>alert(1)</script>"&'
    svg = drawn(StackedBars(label, label, "ms", (Bar(label, (Segment("input", 1.0),)),) * 2))
    assert svg[0].text == label
    assert tips(svg)[0].endswith(label)


def test_a_long_label_is_cut_and_the_bars_stay() -> None:
    svg = drawn(StackedBars("t", "s", "ms", (Bar("x" * 500, (Segment("input", 1.0),)),) * 2))
    assert [text.endswith("x…") for text in texts(svg)].count(True) == 2
    start, end = span(boxes(svg, "input")[0])
    assert end - start > WIDE / 2


@pytest.mark.parametrize(
    ("largest", "unit", "shown"),
    [(2e-5, "ms", "µs"), (20.0, "ms", "ms"), (2e4, "ms", "s"), (1e4, "s", "min"), (1e6, "s", "d")],
)
def test_the_axis_has_a_readable_unit(largest: float, unit: str, shown: str) -> None:
    ticks = [
        text.text or ""
        for text in drawn(bars((largest, 0.0), unit=unit)).iter(f"{NS}text")
        if text.get("class") == "tick"
    ]
    assert ticks[0] == "0"
    assert ticks[-1].endswith(f" {shown}")


@pytest.mark.parametrize("high", [1e-9, 0.003, 1.0, 7.3, 54.1, 99.9, 123456.0])
@pytest.mark.parametrize("most", [3, 6, 10])
def test_ticks_are_round_and_few(high: float, most: int) -> None:
    ticks = Axis.over(0.0, high).ticks(most)
    assert 2 <= len(ticks) <= most + 1
    assert ticks[0] == 0
    assert ticks[-1] <= high * 1.0001
    assert f"{ticks[1]:.1e}"[:3] in {"1.0", "2.0", "2.5", "5.0"}


def test_a_saving_goes_back_and_has_a_minus_sign() -> None:
    svg = drawn(waterfall(10.0, -4.0, -9.0, 0.0, 12.0))
    (start,) = boxes(svg, "total")[:1]
    (saved,) = boxes(svg, "input")
    assert span(saved)[1] == pytest.approx(span(start)[1], abs=0.02)
    assert "saved" in saved.get("class", "")
    assert "−4.00 ms" in texts(svg)
    assert "+12.00 ms" in texts(svg)
    assert "saved" not in boxes(svg, "imbalance")[0].get("class", "")


def test_a_waterfall_that_dips_below_zero_keeps_zero_in_view() -> None:
    svg = drawn(waterfall(4.0, 4.0, -9.0, 0.0, 12.0))
    zero = next(line for line in svg.iter(f"{NS}line") if line.get("class") == "zero")
    (dipping,) = boxes(svg, "compute")
    assert span(dipping)[0] < float(zero.get("x1", "nan")) < span(dipping)[1]


def test_every_change_starts_where_the_previous_one_ended() -> None:
    svg = drawn(waterfall(40.0, 3.0, 5.0, 2.0, 10.0))
    spans = [span(boxes(svg, name)[0]) for name in ("input", "compute", "other")]
    for before, after in zip(spans, spans[1:], strict=False):
        assert after[0] == pytest.approx(before[1], abs=0.02)


def test_a_single_step_is_drawn_as_wide_as_the_chart() -> None:
    (path, _) = drawn(area(1, 10.0, 30.0)).iter(f"{NS}path")
    xs = [float(x) for x in re.findall(r"[ML](-?[\d.]+) ", path.get("d", ""))]
    assert max(xs) - min(xs) > WIDE * 0.8


def test_layers_lie_on_top_of_each_other() -> None:
    lower, upper = drawn(area(300, 10.0, 30.0)).iter(f"{NS}path")
    heights = [
        sorted({float(y) for y in re.findall(r" (-?[\d.]+)", path.get("d", ""))})
        for path in (lower, upper)
    ]
    assert heights[0][0] == heights[1][-1]
    (thin, thick) = (ys[-1] - ys[0] for ys in heights)
    assert thick / thin == pytest.approx(3.0, rel=0.01)


def test_a_layer_shows_its_mean_and_share() -> None:
    assert tips(drawn(area(300, 10.0, 30.0))) == [
        "Input: 10.0 ms on average, 25.0%",
        "Compute: 30.0 ms on average, 75.0%",
    ]


def test_a_freak_step_does_not_flatten_all_others_and_is_marked() -> None:
    chart = area(300, 10.0)
    chart.layers[0][1][150] = 5000.0
    svg = drawn(chart)
    (marked,) = [path for path in svg.iter(f"{NS}path") if path.get("class") == "beyond"]
    assert marked[0].text == "step 150: 5,000 ms"
    ticks = [text.text or "" for text in svg.iter(f"{NS}text") if text.get("class") == "tick"]
    assert not [tick for tick in ticks if tick.startswith("5,000")]


def test_names_of_epochs_do_not_overlap() -> None:
    chart = area(300, 10.0)
    named = [text for text in texts(drawn(chart)) if text.startswith("epoch")]
    # Epoch 1 starts a pixel after epoch 0: its line is drawn, its name does not fit.
    assert named == ["epoch 0", "epoch 2"]
    lines = [line for line in drawn(chart).iter(f"{NS}line") if line.get("class") == "mark"]
    assert len(lines) == 3


@pytest.mark.parametrize("name", COLOURS)
@pytest.mark.parametrize("shade", ["light", "dark"])
def test_text_on_every_colour_can_be_read(name: str, shade: str) -> None:
    light, dark = stylesheet().split("@media", 1)
    rules = light if shade == "light" else dark
    ink = re.search(rf"--on-{name}:(#\w+)", rules)
    ground = re.search(rf"--{name}:(#\w+)", rules)
    assert ink is not None
    assert ground is not None
    assert ground[1] == getattr(COLOURS[name], shade)
    assert contrast(ink[1], ground[1]) >= 4.5


def test_a_colour_has_one_meaning() -> None:
    # Of losses and parts, the colour is that of the stage they belong to.
    same = {"input_stall": "input", "bandwidth": "allreduce"}
    by_colour: dict[object, set[str]] = {}
    for name, colour in COLOURS.items():
        by_colour.setdefault(colour, set()).add(same.get(name, name))
    assert [names for names in by_colour.values() if len(names) > 1] == []


@pytest.mark.parametrize("shade", ["light", "dark"])
@pytest.mark.parametrize("name", ["validation", "steps", "compute_waiting"])
def test_validation_and_whole_steps_do_not_look_like_compute(name: str, shade: str) -> None:
    # Hues apart by a sixth of the circle, or greys.
    compute, colour = (
        colorsys.rgb_to_hls(
            *(part / 255 for part in bytes.fromhex(getattr(COLOURS[key], shade)[1:]))
        )
        for key in ("compute", name)
    )
    apart = abs(compute[0] - colour[0])
    if name == "compute_waiting":
        assert contrast(*(getattr(COLOURS[key], shade) for key in ("compute", name))) > 1.8
    else:
        assert min(apart, 1 - apart) > 1 / 6 or colour[2] < 0.2


def test_whiskers_reach_from_end_to_end_of_the_interval() -> None:
    svg = drawn(compared((Mean(10.0, (8.0, 12.0)), Mean(5.0, None))))
    (box, _) = boxes(svg, "input")
    whiskers = [line for line in svg.iter(f"{NS}line") if line.get("class") == "whisker"]
    start, end = span(box)
    scale = (end - start) / 10
    low, high = (float(whiskers[0].get(name, "nan")) for name in ("x1", "x2"))
    assert (low - start) / scale == pytest.approx(8.0, rel=1e-3)
    assert (high - start) / scale == pytest.approx(12.0, rel=1e-3)
    assert "10 ± 2 ms" in texts(svg)


def test_unmeasured_values_have_no_bar() -> None:
    svg = drawn(compared((Mean(10.0, None), None)))
    assert len(boxes(svg, "input")) == 1
    assert "not measured" in texts(svg)


def test_machine_series_have_gaps_where_nothing_was_measured() -> None:
    def line(chart: OverTime) -> str:
        (path,) = [
            element
            for element in drawn(chart).iter(f"{NS}path")
            if "curve" in element.get("class", "")
        ]
        return path.get("d", "")

    assert line(over_time(80.0)).count("M") == 1
    assert line(over_time(80.0, hole=True)).count("M") == 2
    assert line(over_time(float("nan"))) == ""


def test_cells_are_the_darker_the_larger_and_what_is_missing_is_not_zero() -> None:
    svg = drawn(heat(4, 20, hole=True))
    cells = [element for element in svg.iter(f"{NS}path") if "cells" in element.get("class", "")]
    shades = {element.get("class", "").split()[1]: element.get("d", "") for element in cells}
    assert list(shades) == ["unmeasured", "heat-0", "heat-2", "heat-5", "heat-7"]
    assert shades["heat-0"].split("H")[1] == shades["unmeasured"].split(" ")[0].removeprefix("M")
    (hole,) = [line for line in svg.iter(f"{NS}line") if line.get("class") == "hole"]
    assert float(hole.get("x2", "nan")) - float(hole.get("x1", "nan")) > WIDE / 3


def test_a_heat_map_names_its_ends_events_and_rows() -> None:
    chart = replace(heat(128, 100), least=5.0)
    written = texts(drawn(chart))
    assert {"5.00 ms and less", "10.0 ms and more", "epoch 1", "+10.0 ms", "◀"} <= {*written}
    assert "rank 127" in written
    assert len([text for text in written if text.startswith("rank ")]) < 20
    assert "rank 127 on host 15\n10.0 ms at most: rank 127 at step 0" in tips(drawn(chart))


def test_values_up_to_the_least_have_the_weakest_colour() -> None:
    shades = [
        element.get("class", "").split()[1]
        for element in drawn(replace(heat(5, 10), least=5.0)).iter(f"{NS}path")
        for _ in range(element.get("d", "").count("M"))
    ]
    assert shades == ["heat-0", "heat-0", "heat-0", "heat-4", "heat-7"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_heat_map_can_be_read_without_colours(scheme: str) -> None:
    shades = [getattr(colour, scheme) for colour in HEAT]
    page = "#ffffff" if scheme == "light" else "#25262b"
    contrasts = [contrast(shade, page) for shade in shades]
    assert contrasts == sorted(contrasts)
    assert all(later / earlier > 1.1 for earlier, later in pairwise(contrasts))
    assert contrasts[-1] > 10


def test_published_curves_are_numbered_where_their_names_do_not_fit() -> None:
    wide, narrow = (texts(drawn(efficiencies(*PUBLISHED), width)) for width in (WIDE, NARROW))
    assert {"this job", *PUBLISHED} <= set(wide)
    assert {"this job", "1", "2"} <= set(narrow)
    assert [f"{number}: {name}" for number, name in enumerate(PUBLISHED, 1)] == narrow[-3:-1]
