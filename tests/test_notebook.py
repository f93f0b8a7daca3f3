"""A run in a notebook's cell."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from support.chromium import chromium
from support.step_logs import Job, write_job

import stallscope
from stallscope.errors import MissingExtraError, NotFoundError
from stallscope.runs import open_run

SCRIPT = '<script>document.title="run"</script>"></iframe><h1>out</h1>'
JOB = Job(ranks=2, steps=120, slow={(1, "input"): 9.0}, facts={"run_name": SCRIPT})


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write_job(tmp_path / "job", JOB)
    write_job(tmp_path / "base", Job(ranks=2, steps=120, facts={"synthetic": True}))
    return tmp_path


class Frame(HTMLParser):
    """The one element that a cell shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes = dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_cell_shows_the_report_in_a_frame_without_scripts(logs: Path) -> None:
    shown = stallscope.show(logs / "job")
    frame = Frame(shown._repr_html_())
    assert (frame.tags, frame.text) == (["iframe"], "")
    assert frame.attributes["sandbox"] == "allow-same-origin"
    page = frame.attributes["srcdoc"] or ""
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_figures_are_plain_plotly_ones_in_the_reports_order(logs: Path) -> None:
    shown = stallscope.show(str(logs / "job"), baseline=open_run(str(logs / "base")))
    assert shown.analysis.baseline is not None
    figures = shown.figures()
    # Ledger, baseline, ranks, steps, job.
    assert len(figures) == 5
    assert all(isinstance(one, go.Figure) for one in figures)
    light, dark = figures[0], shown.figures(dark=True)[0]
    assert light.layout.font.color != dark.layout.font.color


def test_what_is_said_in_text(logs: Path) -> None:
    said = repr(stallscope.show(logs / "job"))
    assert "ank 1" in said
    assert "\n" not in said


def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        stallscope.show(tmp_path / "nowhere")


def test_without_the_app_one_sentence_says_so(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stallscope.notebook", raising=False)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtraError, match=r"stallscope\[app\]"):
        stallscope.show(logs / "job")


@pytest.mark.browser
def test_the_frame_is_as_high_as_the_report_and_runs_nothing(logs: Path, tmp_path: Path) -> None:
    page_path = tmp_path / "cell.html"
    cell = stallscope.show(logs / "job")._repr_html_()
    page_path.write_text(f"<!doctype html><title>notebook</title><body>{cell}", "utf-8")
    asked: list[str] = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 700})
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_path.as_uri())
        fits = (
            "() => { const frame = document.querySelector('iframe'); "
            "const page = frame.contentDocument.documentElement; "
            "const over = frame.clientHeight - page.getBoundingClientRect().height; "
            "return over >= 0 && over <= 1 && frame.clientHeight !== 900; }"
        )
        page.wait_for_function(fits)
        before = page.evaluate("document.querySelector('iframe').clientHeight")
        page.frames[1].locator("details:not([open]) summary").first.click()
        page.wait_for_function(f"() => document.querySelector('iframe').clientHeight !== {before}")
        page.wait_for_function(fits)
        assert page.title() == "notebook"
        assert page.locator("h1").count() == 0
        assert asked == [page_path.as_uri()]
