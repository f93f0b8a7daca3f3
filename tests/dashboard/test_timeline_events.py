"""Events from other logs, as marks above the lanes and as a list."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from stallscope.analysis import analyse
from stallscope.analysis.views.lanes import Lanes
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.timeline import head, marks
from stallscope.run import Event, Run

from .browsing import Open, served, timeline_drawn
from .cases import IMAGE
from .content import texts

S = 10**9


def stall(wall_ns: int | None, **more: object) -> Event:
    event = Event("stall", "stderr.txt", "tensors wait for rank 2: grad_a", (2,), ("beta",))
    return replace(event, wall_ns=wall_ns, **more)  # type: ignore[arg-type]


def wall_of_end(run: Run, lanes: Lanes, step: int) -> int:
    """Wall time at which a step was reduced on rank 0."""
    at = lanes.generations[0].ledger.steps.tolist().index(step)
    return int(lanes.generations[0].ledger.reduced[at]) + run.logs[0].wall_minus_monotonic


def told(run: Run, lanes: Lanes) -> list[dict[str, object]]:
    events: list[dict[str, object]] = head(
        analyse(run), lanes, "slow", None, {}, marks(run, lanes)
    )["events"]
    return events


def test_an_event_stands_where_the_wall_clock_puts_it(slow: tuple[Run, Lanes]) -> None:
    run, lanes = slow
    for step in (3, 100, 239):
        (mark,) = told(replace(run, events=(stall(wall_of_end(run, lanes, step) - 1000),)), lanes)
        assert mark["at"] == pytest.approx((lanes.end[step] - 1000) / S, abs=1e-9)
        assert str(mark["when"]).endswith(f", step {step}")
        assert mark["words"] == "tensors wait for rank 2: grad_a"
        assert mark["who"] == "rank 2, beta"


def test_what_had_lasted_and_what_is_not_sure_is_a_bar(slow: tuple[Run, Lanes]) -> None:
    run, lanes = slow
    wall = wall_of_end(run, lanes, 100)
    event = stall(wall, waited_ns=S // 2, uncertainty_ns=S // 4)
    (mark,) = told(replace(run, events=(event,)), lanes)
    at = lanes.end[100] / S
    assert (mark["from"], mark["to"]) == pytest.approx((at - 0.5, at + 0.25))


def test_what_lies_elsewhere_is_listed_and_not_drawn(slow: tuple[Run, Lanes]) -> None:
    run, lanes = slow
    first, last = wall_of_end(run, lanes, 0), wall_of_end(run, lanes, 239)
    events = (stall(None, local_ns=5), stall(last + 3 * S), stall(first - 3600 * S))
    run = replace(run, events=events)
    assert told(run, lanes) == []
    assert [mark.when for mark in marks(run, lanes)] == [
        "60.0 min before the first step",
        "3.00 s after the last step",
        "not known",
    ]
    said = texts(view_at(RunStore([run]), "/run/slow/timeline", "").content)
    assert "Events from other logs" in said
    assert any("Of 1 the time is not known" in text for text in said)


def test_without_a_wall_clock_no_place_is_made_up(slow: tuple[Run, Lanes]) -> None:
    run, lanes = slow
    facts = [
        {name: value for name, value in log.facts.items() if name != "anchor"} for log in run.logs
    ]
    logs = tuple(
        replace(log, facts=log_facts) for log, log_facts in zip(run.logs, facts, strict=True)
    )
    (mark,) = marks(replace(run, logs=logs, events=(stall(S),)), lanes)
    assert (mark.at, mark.when) == (None, "1970-01-01 00:00:01.000 UTC")


def test_without_events_there_is_no_list_and_no_button(store: RunStore) -> None:
    said = texts(view_at(store, "/run/slow/timeline", "").content)
    assert "Events from other logs" not in said
    assert "Other logs ›" not in said


def test_without_stages_they_are_listed_all_the_same(named_run: Callable[[str], Run]) -> None:
    run = replace(named_run("without stamps"), events=(stall(S),))
    said = texts(view_at(RunStore([run]), "/run/without-stamps/timeline", "").content)
    assert "Events from other logs" in said


@pytest.fixture(scope="module")
def address(slow: tuple[Run, Lanes]) -> Iterator[str]:
    run, lanes = slow
    hostile = Event("stall", IMAGE, f"{IMAGE} grad", hosts=(IMAGE,))
    walls = [wall_of_end(run, lanes, step) - 1000 for step in (60, 180)]
    events = (
        stall(walls[0], waited_ns=S),
        replace(hostile, wall_ns=walls[1], uncertainty_ns=S),
        hostile,
    )
    with served(RunStore([replace(run, events=events)])) as url:
        yield url


@pytest.mark.browser
def test_marks_are_described_by_keys_by_buttons_and_by_pointing(
    open_page: Open, slow: tuple[Run, Lanes]
) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    readout = page.locator("#timeline-readout")
    page.locator("#timeline").focus()
    page.keyboard.press("e")
    first = re.compile(r"step 60: tensors wait for rank 2: grad_a \(rank 2, beta\)\.")
    expect(readout).to_have_text(first)
    page.keyboard.press("e")
    expect(readout).to_contain_text(f"{IMAGE} grad")
    page.keyboard.press("e")
    expect(readout).to_contain_text("No event of other logs after this position")
    page.get_by_role("button", name="Previous mark of other logs").click()
    expect(readout).to_have_text(first)
    _, lanes = slow
    box = page.locator("#timeline canvas").bounding_box()
    assert box is not None
    share = int(lanes.end[60]) / lanes.span
    page.mouse.move(box["x"] + 170 + share * (box["width"] - 170), box["y"] + 102 - 46)
    expect(page.locator(".timeline-tip")).to_have_text(first)
    page.mouse.move(box["x"] + 170 + (share + 0.1) * (box["width"] - 170), box["y"] + 102 - 46)
    expect(page.locator(".timeline-tip")).to_be_hidden()


def rows(page: Page) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    text = Path(download.value.path()).read_text("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.browser
def test_marks_are_saved_with_the_numbers_and_the_drawing(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    event_rows = [row for row in rows(page) if row["other logs"]]
    assert [row["other logs"] for row in event_rows] == [
        "tensors wait for rank 2: grad_a",
        f"{IMAGE} grad",
    ]
    assert float(event_rows[0]["end, s"]) - float(event_rows[0]["begin, s"]) == pytest.approx(
        1, abs=1e-5
    )
    assert event_rows[0]["ranks"] == "rank 2, beta"
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").click()
    assert "other logs" in Path(download.value.path()).read_text()
