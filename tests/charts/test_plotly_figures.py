"""Charts as Plotly figures."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from math import log2

import numpy as np
import pytest

from stallscope.analysis.views.machine_series import ValueColumns
from stallscope.arrays.stats import Mean
from stallscope.charts import COLOURS, HEAT, SHADES
from stallscope.charts.chart_kinds import Bar, Segment, StackedArea, StackedBars, Waterfall
from stallscope.charts.charts import Chart
from stallscope.charts.compared_bars import ComparedBars
from stallscope.charts.curves import EfficiencyLine, EfficiencyLines
from stallscope.charts.heat_map import HeatMap, HeatMapRow
from stallscope.charts.marks import marks_of
from stallscope.charts.plotly_figures import CONFIG, draw, figure
from stallscope.charts.plotly_figures.plotly_parts import Drawing
from stallscope.charts.scaling_curves import RateBar, RateBars
from stallscope.charts.step_time import OverTime
from stallscope.formatting.sums import SumColumn

# A colour for light pages and one for dark pages.
PAIR = re.compile(r"light-dark\((#\w+|rgba\([^)]*\)), (#\w+|rgba\([^)]*\))\)")
HOSTILE = "<img src=x onerror=alert(1)> & %{x}"

BARS = StackedBars(
    "Ranks",
    "Two ranks.",
    "ms",
    (
        Bar("rank 0", (Segment("input", 4.0, (3.5, 4.5)), Segment("compute", 16.0))),
        Bar("rank 1", (Segment("compute", 30.0),), emphasised=True),
    ),
)
WATERFALL = Waterfall(
    "Against the baseline",
    "Slower.",
    "ms",
    ("baseline", 20.0),
    (Segment("input", 8.0, (7.0, 9.0)), Segment("compute", -3.0), Segment("other", 0.01)),
    ("this run", 25.01),
    SumColumn.of([8.0, -3.0, 0.01], 25.01),
    20.0,
)
AREA = StackedArea(
    "Over the run",
    "Steady.",
    "ms",
    "step",
    np.arange(5.0),
    (("input", np.ones(5)), ("compute", np.full(5, 3.0))),
    marks=tuple((float(step), f"epoch {step}") for step in range(5)),
)
CHARTS = (BARS, WATERFALL, AREA)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
@pytest.mark.parametrize("dark", [False, True])
def test_a_figure_takes_the_palette_and_lets_the_page_show_through(
    chart: Chart, dark: bool
) -> None:
    drawn = figure(chart, dark=dark)
    text = drawn.to_json()
    for name in ("input", "compute"):
        colour = COLOURS[name]
        assert (colour.dark if dark else colour.light) in text
    assert drawn.layout.paper_bgcolor == drawn.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert drawn.layout.height > 0
    assert drawn.layout.width is None


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
def test_a_page_gets_every_colour_for_light_and_for_dark(chart: Chart) -> None:
    text = json.dumps(draw(chart).plain())
    for at, dark in enumerate((False, True), start=1):
        page = json.loads(PAIR.sub(rf"\{at}", text))
        expected = json.loads(figure(chart, dark=dark).to_json())
        assert colours_in(page["layout"]) == colours_in({**expected["layout"], "template": None})
        assert colours_in(page["data"]) == colours_in(expected["data"])
    # No colour is the same in both.
    assert "#" not in PAIR.sub("", text)


def colours_in(part: object) -> list[str]:
    """List the colours in a part of a figure, in order of their properties' names."""
    if isinstance(part, dict):
        return [colour for name in sorted(part) for colour in colours_in(part[name])]
    if isinstance(part, list):
        return [colour for entry in part for colour in colours_in(entry)]
    return [part] if isinstance(part, str) and part.startswith(("#", "rgba(")) else []


def test_tooltips_have_name_amount_share_interval_and_bar() -> None:
    first, second = figure(BARS, dark=False).data
    assert first.hovertext[0] == (
        "<b>Input</b><br>4.0 ms, 20.0% of 20.0 ms<br>95% interval: 3.50–4.50 ms<br>rank 0"
    )
    assert second.hovertext[1] == "<b>Compute</b><br>30.0 ms, 100% of 30.0 ms<br>rank 1"


def test_a_missing_segment_is_not_zero() -> None:
    first, _ = figure(BARS, dark=False).data
    assert first.x[1] is None


def test_an_emphasised_bar_is_bold_on_a_band() -> None:
    drawn = figure(BARS, dark=False)
    assert list(drawn.layout.yaxis.ticktext) == ["rank 0", "<b>rank 1</b>"]
    (band,) = drawn.layout.shapes
    assert (band.y0, band.y1) == (0.5, 1.5)


def test_bars_of_the_same_label_stay_apart() -> None:
    twins = replace(BARS, bars=(BARS.bars[0], BARS.bars[0]))
    drawn = figure(twins, dark=False)
    assert list(drawn.data[0].y) == [0, 1]
    assert list(drawn.layout.yaxis.ticktext) == ["rank 0", "rank 0"]


def test_many_bars_are_thinner_and_carry_no_text() -> None:
    few, many = (
        figure(replace(BARS, bars=BARS.bars[:1] * number), dark=False) for number in (2, 32)
    )
    assert few.data[0].text[0] == "4.0 ms"
    assert many.data[0].text is None
    assert many.layout.height < 16 * few.layout.height
    assert many.layout.height < 800


def test_a_waterfall_goes_from_one_total_to_the_other() -> None:
    rows = figure(WATERFALL, dark=False).data
    starts = [row.base[0] for row in rows]
    ends = [start + row.x[0] for start, row in zip(starts, rows, strict=True)]
    # Totals end at their own value on the axis.
    assert ends == pytest.approx([20.0, 28.0, 25.0, 25.01, 25.01])
    assert starts == pytest.approx([0.0, 20.0, 28.0, 25.0, 0.0])


def test_a_waterfall_of_small_changes_has_a_cut_axis_that_says_so() -> None:
    small = replace(
        WATERFALL,
        start=("baseline", 184.0),
        changes=(Segment("input", 8.0, (7.0, 9.0)), Segment("compute", -3.0)),
        end=("this run", 189.0),
        printed=SumColumn.of([8.0, -3.0], 5.0),
        printed_start=184.0,
    )
    drawn = figure(small, dark=False)
    low, high = drawn.layout.xaxis.range
    assert 150 < low < 184 < 193 <= high
    assert drawn.layout.xaxis.tickvals[0] == low
    assert [row.base[0] for row in drawn.data] == pytest.approx([low, 184.0, 192.0, low])
    assert ("cut", f"the axis starts at {low:.0f} ms") in marks_of(small)
    assert "cut" not in dict(marks_of(WATERFALL))


def test_a_waterfall_shows_every_amount_with_its_sign() -> None:
    drawn = figure(WATERFALL, dark=False)
    amounts = [note.text for note in drawn.layout.annotations]
    assert amounts == ["20.0 ms", "+8.0 ms", "−3.0 ms", "0.0 ms", "25.0 ms"]
    assert [row.marker.pattern.shape for row in drawn.data] == ["", "", "/", "", ""]
    assert drawn.data[1].hovertext == ("<b>Input</b><br>+8.0 ms<br>95% interval: 7.00–9.00 ms",)


def test_layers_are_stacked_and_named_by_unit() -> None:
    drawn = figure(AREA, dark=False)
    assert [layer.stackgroup for layer in drawn.data] == ["entries", "entries"]
    assert drawn.data[0].hovertemplate == "Input: %{y:.2f} ms<extra></extra>"


def test_every_epoch_has_a_line_and_some_have_a_label() -> None:
    many = replace(AREA, marks=tuple((float(step), f"epoch {step}") for step in range(100)))
    drawn = figure(many, dark=False)
    assert len(drawn.layout.shapes) == 100
    assert 2 <= len(drawn.layout.annotations) <= 6


def test_text_from_logs_is_escaped() -> None:
    escaped = "&lt;img src=x onerror=alert(1)&gt; &amp; %{x}"
    bars = replace(BARS, bars=(replace(BARS.bars[0], label=HOSTILE),))
    waterfall = replace(WATERFALL, start=(HOSTILE, 20.0))
    area = replace(AREA, x_label=HOSTILE, marks=((0.0, HOSTILE),))
    for chart in (bars, waterfall, area):
        drawn = figure(chart, dark=False)
        texts = [
            *(text for trace in drawn.data for text in (trace.hovertext or ())),
            *(note.text for note in drawn.layout.annotations),
            *(drawn.layout.yaxis.ticktext or ()),
            drawn.layout.xaxis.tickprefix or "",
        ]
        # Long labels have two lines.
        assert any(escaped in text.replace("<br>", " ") for text in texts)
        assert not any("<img" in text for text in texts)


def test_names_are_never_taken_for_templates() -> None:
    bars = replace(BARS, bars=(replace(BARS.bars[0], label=HOSTILE),))
    assert all(trace.hovertemplate is None for trace in figure(bars, dark=False).data)


@pytest.mark.parametrize("chart", [BARS, AREA], ids=["bars", "area"])
def test_the_legend_can_be_left_to_the_page(chart: Chart) -> None:
    with_legend, without = figure(chart, dark=False), figure(chart, dark=False, legend=False)
    assert without.layout.showlegend is False
    assert without.layout.height < with_legend.layout.height


def test_no_button_sends_anything_anywhere() -> None:
    assert CONFIG["displaylogo"] is False
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["showEditInChartStudio"] is False
    assert CONFIG["plotlyServerURL"] == ""


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="no way to draw a str"):
        figure("chart", dark=False)  # type: ignore[arg-type]


HEAT_MAP = HeatMap(
    "Late",
    "Who is.",
    "ms",
    "step",
    tuple(HeatMapRow(f"rank {row}", HOSTILE, row == 1) for row in range(4)),
    np.arange(6.0),
    np.array([[0.0, 1, 2, 3, 4], [5.0, 5, 5, 5, 5], [np.nan, np.nan, 0, 0, np.nan], [0.0] * 5]),
    np.full((4, 5), 7.0),
    np.tile(np.arange(5.0), (4, 1)),
    np.full((4, 5), 3.0),
    5.0,
)
COMPARED = ComparedBars(
    "Stages",
    "Beside each other.",
    "ms",
    (HOSTILE, "baseline"),
    (("input", (Mean(10.0, (8.0, 13.0)), None)), ("compute", (Mean(20.0, None), Mean(19.0, None)))),
)


OVER_TIME = OverTime(
    "Busy",
    "How busy.",
    HOSTILE,
    100.0,
    np.arange(4.0),
    ValueColumns(*(np.array([5.0, np.nan, 7.0, 8.0]) + more for more in (-1.0, 0.0, 2.0))),
)


@pytest.mark.parametrize(
    "chart", [HEAT_MAP, COMPARED, OVER_TIME], ids=lambda chart: type(chart).__name__
)
@pytest.mark.parametrize("dark", [False, True])
def test_further_kinds_let_the_page_show_through_and_escape_text_from_logs(
    chart: Chart, dark: bool
) -> None:
    drawn = figure(chart, dark=dark)
    assert drawn.layout.paper_bgcolor == drawn.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert drawn.layout.height > 0
    # As the browser gets it; a dash escapes < and & there once more.
    assert "<img" not in drawn.to_json()


def test_a_heat_map_has_a_row_per_rank_and_the_latest_step_under_the_pointer() -> None:
    drawn = figure(HEAT_MAP, dark=False)
    cells = drawn.data[0]
    assert cells.z.shape == (4, 5)
    assert len(cells.x) == 6
    assert cells.customdata[1, 2].tolist() == [7.0, 2.0, 3.0]
    assert "at most: rank %{customdata[2]:d} at step %{customdata[1]:,d}" in cells.hovertemplate
    assert list(drawn.layout.yaxis.ticktext) == ["rank 0", "<b>rank 1</b>", "rank 2", "rank 3"]
    assert (drawn.layout.coloraxis.cmin, drawn.layout.coloraxis.cmax) == (0, 5)
    assert [note.text for note in drawn.layout.annotations] == ["◀"]


def test_unmeasured_ranks_have_a_line_and_no_colour() -> None:
    _, holes = figure(HEAT_MAP, dark=False).data
    assert list(holes.x) == [0.0, 2.0, None, 4.0, 5.0, None]
    assert figure(HEAT_MAP, dark=False).data[0].hoverongaps is False


def test_light_and_dark_heat_maps_differ_only_in_colours() -> None:
    light, dark = (figure(HEAT_MAP, dark=dark, legend=False) for dark in (False, True))
    assert light.data[0].to_json() == dark.data[0].to_json()
    assert [drawn.data[1].line.color for drawn in (light, dark)] == [*SHADES["muted"]]
    assert [end for _, end in light.layout.coloraxis.colorscale] == [light for light, _ in HEAT]
    assert [end for _, end in dark.layout.coloraxis.colorscale] == [dark for _, dark in HEAT]
    assert light.layout.coloraxis.showscale is False
    assert figure(HEAT_MAP, dark=False).layout.coloraxis.showscale is True


def test_of_many_rows_the_named_ones_keep_their_labels() -> None:
    many = replace(
        HEAT_MAP,
        rows=tuple(HeatMapRow(f"rank {row}", f"host {row // 8}", row == 77) for row in range(200)),
        **{name: np.zeros((200, 5)) for name in ("values", "most", "most_at", "most_of")},
    )
    drawn = figure(many, dark=False)
    assert "<b>rank 77</b>" in drawn.layout.yaxis.ticktext
    assert len(drawn.layout.yaxis.ticktext) < 20
    assert drawn.layout.height < 800


def test_compared_bars_have_whiskers_and_unmeasured_values_have_no_bar() -> None:
    drawn = figure(COMPARED, dark=False)
    assert len(drawn.data) == 3
    whiskers = drawn.data[0].error_x
    assert (whiskers.array[0], whiskers.arrayminus[0]) == (3.0, 2.0)
    assert [note.text for note in drawn.layout.annotations] == [
        "10 ± 2 ms",
        "not measured",
        "20.0 ms",
        "19.0 ms",
    ]
    assert drawn.layout.yaxis.ticktext[0] == "<b>Input</b>"


def test_a_mean_is_within_its_range_with_gaps_where_nothing_was_measured() -> None:
    high, low, mean = figure(OVER_TIME, dark=False).data
    assert (list(high.y[2:]), list(mean.y[2:]), list(low.y[2:])) == ([9, 10], [7, 8], [6, 7])
    assert np.isnan(mean.y[1])
    assert not mean.connectgaps
    assert low.fill == "tonexty"


def test_numbers_are_packed_as_the_browser_reads_them() -> None:
    drawn = Drawing(height=100)
    cells = np.arange(6, dtype=np.float32).reshape(2, 3)
    drawn.add_trace("heatmap", x=np.arange(3), y=["a", "b"], z=cells, text=None)
    drawn.add_trace("scatter", x=np.array([1.0, np.nan]), y=np.array(["one", None], object))
    heat, line = drawn.plain()["data"]
    assert heat == {
        "type": "heatmap",
        "x": {"dtype": "f8", "bdata": packed(np.arange(3.0))},
        "y": ["a", "b"],
        "z": {"dtype": "f4", "bdata": packed(cells), "shape": "2, 3"},
    }
    assert line["x"]["bdata"] == packed(np.array([1.0, np.nan]))
    assert line["y"] == ["one", None]


def packed(array: np.ndarray) -> str:
    return b64encode(array.tobytes()).decode()


def test_properties_of_an_axis_join_those_that_it_has() -> None:
    drawn = Drawing(xaxis={"nticks": 6, "showgrid": True}, height=100)
    drawn.update(xaxis={"showgrid": False}, height=200, legend=None)
    assert drawn.layout["xaxis"] == {"nticks": 6, "showgrid": False}
    assert drawn.layout["height"] == 200
    assert "legend" not in drawn.layout


@pytest.mark.parametrize(
    ("most", "names"),
    [
        (1, ["1"]),
        (4, ["1", "2", "4"]),
        (100, ["1", "2", "4", "8", "16", "32", "100"]),
        (512, ["1", "4", "16", "64", "512"]),
        (1000, ["1", "4", "16", "64", "256", "1,000"]),
    ],
)
def test_the_largest_number_of_ranks_has_a_name(most: int, names: list[str]) -> None:
    line = EfficiencyLine("this job", ((1, Mean(1.0, None)), (most, Mean(0.9, None))))
    drawn = figure(EfficiencyLines("Efficiency", "Of ranks.", (line,)), dark=False)
    assert list(drawn.layout.xaxis.ticktext) == names
    assert drawn.layout.xaxis.tickvals[-1] == pytest.approx(log2(most))


def test_projections_do_not_dwarf_what_was_measured() -> None:
    measured = RateBar(4, Mean(1000.0, (950.0, 1050.0)), None, 1100.0)
    projected = RateBar(32, Mean(8000.0, (5000.0, 9000.0)), None, None, projected=True)
    chart = RateBars("Throughput", "Of ranks.", "samples/s", (measured, projected))
    assert chart.axis.high == pytest.approx(2100.0)
    assert chart.beyond == [(1, projected)]
    assert ("beyond", "beyond the axis") in marks_of(chart)
    drawn = figure(chart, dark=False)
    (mark,) = [trace for trace in drawn.data if trace.name == "beyond the axis"]
    assert (mark.x[0], mark.y[0]) == (1, chart.axis.high)
    assert "projected: 8,000 (5,000–9,000) samples/s" in mark.hovertext[0]
    # The figure above the bar is that of its end.
    assert [(note.text, note.y) for note in drawn.layout.annotations] == [
        ("1,000", 1100.0),
        ("8,000", chart.axis.high),
    ]
    alone = replace(chart, bars=(measured,))
    assert alone.beyond == []
    assert alone.axis.high == 1100.0
