"""A run in a notebook's cell."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from playwright.sync_api import Browser
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

import stallscope
from stallscope.errors import MissingExtraError, NotFoundError
from stallscope.opening import open_run

SCRIPT = '<script>document.title="run"</script>"></iframe><h1>out</h1>'
NOTEBOOK = Path(__file__).parents[1] / "docs" / "analysis.ipynb"
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


def test_figures_are_plain_plotly_figures_in_the_reports_order(logs: Path) -> None:
    shown = stallscope.show(str(logs / "job"), baseline=open_run(str(logs / "base")))
    assert shown.analysis.baseline is not None
    figures = shown.figures()
    # Ledger, gains, baseline, ranks, steps, job.
    assert len(figures) == 6
    assert all(isinstance(figure, go.Figure) for figure in figures)
    light, dark = figures[0], shown.figures(dark=True)[0]
    assert light.layout.font.color != dark.layout.font.color


def test_the_text_output_is_one_line_with_the_slow_rank(logs: Path) -> None:
    printed = repr(stallscope.show(logs / "job"))
    assert "ank 1" in printed
    assert "\n" not in printed


def test_an_unreadable_run_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        stallscope.show(tmp_path / "nowhere")


def test_without_the_app_the_error_is_one_sentence(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "stallscope.notebook", raising=False)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtraError, match=r"stallscope\[app\]"):
        stallscope.show(logs / "job")


# In a real kernel

Outputs = list[list[dict[str, Any]]]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run cells as a separate notebook, one after the other, and return their outputs."""
    folder = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder / name.lower()))

        def ran(*cells: str) -> Outputs:
            notebook = nbformat.v4.new_notebook()
            notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
            NotebookClient(
                notebook,
                timeout=int(PATIENCE_SECONDS),
                startup_timeout=int(PATIENCE_SECONDS),
                kernel_name="python3",
            ).execute()
            nbformat.validate(notebook)
            return [cell.outputs for cell in notebook.cells]

        yield ran


@pytest.mark.slow
def test_a_notebook_shows_the_report_and_plain_figures(logs: Path, kernel: Any) -> None:
    report, figures, printed, html = kernel(
        f"import stallscope\nrun = stallscope.show({str(logs / 'job')!r})\nrun",
        "for drawn in run.figures():\n    drawn.show()",
        "print(run)",
        "run._repr_html_()[:8]",
    )
    (shown,) = report
    assert shown["output_type"] == "execute_result"
    assert "ank 1" in shown["data"]["text/plain"]
    page = Frame(shown["data"]["text/html"]).attributes["srcdoc"] or ""
    assert "&lt;script&gt;" in page
    # The page requests no addresses but its own.
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert not re.search(r"url\((?!#|data:)|@import", page)

    assert {output["output_type"] for output in figures} == {"display_data"}
    kind = "application/vnd.plotly.v1+json"
    # Older versions of plotly show their setup before the first figure.
    shown_figures = [output["data"][kind] for output in figures if kind in output["data"]]
    assert len(shown_figures) == 5
    for drawn in shown_figures:
        assert drawn["data"]
        assert drawn["layout"]["paper_bgcolor"] == "#ffffff"
    assert printed[0]["text"] == f"{report[0]['data']['text/plain']}\n"
    assert html[0]["data"]["text/plain"] == "'<iframe '"


@pytest.mark.any_versions
@pytest.mark.slow
def test_an_unreadable_run_shows_one_sentence_in_a_cell(logs: Path, kernel: Any) -> None:
    with pytest.raises(CellExecutionError) as raised:
        kernel(f"import stallscope\nstallscope.show({str(logs / 'nowhere')!r})")
    assert raised.value.ename == "NotFoundError"
    assert "nowhere" in raised.value.evalue
    assert "\n" not in raised.value.evalue


@pytest.mark.any_versions
@pytest.mark.slow
def test_the_docs_notebook_runs(kernel: Any) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # Outputs would grow old, and figures are large.
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    outputs = kernel(*(cell.source for cell in cells))
    assert all(outputs)
    assert outputs[0][0]["text"] == "Rank 1 holds this run back: its input is slow\n"
    figures = [
        output
        for cell_outputs in outputs
        for output in cell_outputs
        if output["output_type"] == "display_data"
    ]
    kind = "application/vnd.plotly.v1+json"
    assert sum(kind in output["data"] for output in figures) == 3
    assert "<iframe" in outputs[-1][0]["data"]["text/html"]


# In a real browser


@pytest.mark.browser
@pytest.mark.parametrize(("ground", "scheme"), [("#111111", "dark"), ("#ffffff", "light")])
def test_the_report_is_light_or_dark_like_the_notebook(
    browser: Browser, logs: Path, tmp_path: Path, ground: str, scheme: str
) -> None:
    cell = stallscope.show(logs / "job")._repr_html_()
    page_path = tmp_path / "cell.html"
    page_path.write_text(f"<body style='background:{ground}'><div>{cell}</div>", "utf-8")
    page = browser.new_page(color_scheme="null")
    page.goto(page_path.as_uri())
    page.wait_for_function(
        f"document.querySelector('iframe').contentWindow"
        f".matchMedia('(prefers-color-scheme: {scheme})').matches"
    )
    assert page.locator("iframe").evaluate("frame => frame.style.colorScheme") == scheme
    page.close()


@pytest.mark.browser
def test_the_frame_is_as_high_as_the_report_and_runs_nothing(
    browser: Browser, logs: Path, tmp_path: Path
) -> None:
    page_path = tmp_path / "cell.html"
    cell = stallscope.show(logs / "job")._repr_html_()
    page_path.write_text(f"<!doctype html><title>notebook</title><body>{cell}", "utf-8")
    requested: list[str] = []
    page = browser.new_page(viewport={"width": 1000, "height": 700})
    page.on("request", lambda request: requested.append(request.url))
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
    assert requested == [page_path.as_uri()]
    page.close()
