"""The list of runs and the comparison of two, without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.step_logs import run_of_job

from stallscope.analysis.comparison import compare
from stallscope.catalogue.entry import AnalysisSummary
from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.addresses import compare_address
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.runs_table import BLOCK, line_of
from stallscope.dashboard.pages.runs_page import RowBlock, analysed_row, comparison_links, rows_of
from stallscope.dashboard.store import RunListing
from stallscope.errors import UnreadableError
from stallscope.formatting.numbers import percent
from stallscope.reports.comparison.pair import outcome
from stallscope.run import Run
from stallscope.words import CAUSES

from .cases import IMAGE, REAL, SCRIPT, SLOW_RANK, SYNTHETIC, WITHOUT_STAMPS
from .content import charts, of_type, texts
from .stores import NOW, Listed, listed

_LINES = "..runs-grid.getRowsResponse...runs-count.children...runs-search.error"
_LINES += "...runs-empty.children...runs-waiting.data...runs-addressed.data"
_LINES += "...runs-undecided.data.."


@pytest.fixture(scope="module")
def many() -> RunStore:
    return RunStore(sources=[Listed([listed(number) for number in range(10_000)])])


def _asked(store: RunStore, request: dict[str, Any], text: str = "") -> tuple[int, dict[str, Any]]:
    """What the browser gets for a request of lines: how many bytes, and the answer."""
    outputs = [dict(zip(("id", "property"), part.split("."), strict=True)) for part in _parts()]
    body = {
        "output": _LINES,
        "outputs": outputs,
        "inputs": [{"id": "runs-grid", "property": "getRowsRequest", "value": request}],
        "state": [{"id": "runs-search", "property": "value", "value": text}],
        "changedPropIds": ["runs-grid.getRowsRequest"],
    }
    answer = create_app(store).server.test_client().post("/_dash-update-component", json=body)
    assert answer.status_code == 200
    return len(answer.data), answer.get_json()["response"]


def _parts() -> list[str]:
    return _LINES.strip(".").split("...")


def test_without_runs_the_page_says_how_to_get_some() -> None:
    said = " ".join(texts(view_at(RunStore([]), "/", "").content))
    assert "There are no runs here yet." in said
    assert "stallscope collect SOURCE… --to DIR" in said
    assert rows_of(RunStore([]), {}, "").rows == []


@pytest.mark.parametrize("order", [7, [], [7], {}, [{"colId": []}], None])
@pytest.mark.parametrize("start", ["x", [], -3, None])
def test_a_request_of_another_form_gets_the_first_rows(
    store: RunStore, order: object, start: object
) -> None:
    assert rows_of(store, {"startRow": start, "sortModel": order}, "") == rows_of(store, {}, "")


def test_one_run_has_a_line_that_is_filled_in(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("a slow rank")])
    lines = rows_of(store, {"startRow": 0, "endRow": 100}, "")
    assert (lines.matching, lines.total, lines.pending) == (1, 1, ["slow"])
    assert lines.rows[0]["verdict"] == "…"
    line = analysed_row(store, "slow")
    assert line["verdict"] == "Slow rank 2"
    assert line["stage"] == "imbalance"
    assert [share["name"] for share in line["shares"]] == list(CAUSES)
    compute = store.analysis("slow").cause("compute")
    assert compute is not None
    assert f"Compute {percent(compute.share)}" in line["sharesText"]
    # What was found is in the list from then on.
    again = rows_of(store, {}, "verdict=imbalance")
    assert [row["verdict"] for row in again.rows] == ["Slow rank 2"]
    assert again.pending == []


def _analysed_in_turns(store: RunStore, request: dict[str, Any], text: str) -> RowBlock:
    """Analyse what the list asks for, turn by turn, as the page does."""
    block = rows_of(store, request, text)
    for _ in range(len(store.listing().shown)):
        if not block.undecided:
            break
        assert block.pending
        for run_id in block.pending:
            analysed_row(store, run_id)
        block = rows_of(store, request, text)
    assert block.undecided == 0
    return block


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("verdict=imbalance", {"slow"}),
        ("step_ms>1", {"slow", "two", "a", "b", "c"}),
        ("step_ms>9999", set()),
        ("imbalance", {"slow"}),
        ("not imbalance and not verdict=imbalance", {"two", "a", "b", "c"}),
        ("verdict!=imbalance", {"two", "a", "b", "c"}),
        ("ranks>2 and verdict=imbalance", {"slow"}),
    ],
)
def test_a_search_of_runs_that_are_not_analysed_yet_ends_with_those_that_match(
    named_run: Callable[[str], Run], text: str, matching: set[str]
) -> None:
    copies = [replace(named_run("two ranks"), id=name) for name in ("a", "b", "c")]
    store = RunStore([named_run("a slow rank"), named_run("two ranks"), *copies])
    _, answer = _asked(store, {"startRow": 0}, text)
    undecided = answer["runs-undecided"]["data"]
    assert undecided == (1 if text.startswith("ranks") else 5)
    assert answer["runs-count"]["children"] == f"0 of 5 runs, {undecided} still to analyse"
    said = json.dumps(answer["runs-empty"])
    assert "No run matches this search so far." in said
    assert "Those that match appear here." in said
    assert 0 < len(answer["runs-waiting"]["data"]) <= 4
    block = _analysed_in_turns(store, {}, text)
    assert {row["id"] for row in block.rows} == matching
    assert all(row["verdict"] != "…" for row in block.rows)


def test_what_the_facts_decide_waits_for_no_analysis(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("a slow rank"), named_run("two ranks")])
    block = rows_of(store, {}, "ranks>=8")
    assert ([row["id"] for row in block.rows], block.undecided) == (["slow"], 0)
    assert rows_of(store, {}, "").undecided == 0
    block = rows_of(store, {}, "ranks>=800 and verdict=imbalance")
    assert (block.matching, block.undecided, block.pending) == (0, 0, [])


def test_an_order_by_figures_ends_with_all_runs_in_it(named_run: Callable[[str], Run]) -> None:
    runs = [named_run("a slow rank"), named_run("two ranks"), named_run("four ranks")]
    store = RunStore(runs)
    request = {"startRow": 0, "sortModel": [{"colId": "step", "sort": "desc"}]}
    assert rows_of(store, request, "").undecided == 3
    rows = _analysed_in_turns(store, request, "").rows
    steps = [store.analysis(str(row["id"])).step for row in rows]
    means = [step.mean for step in steps if step is not None]
    assert len(means) == 3
    assert means == sorted(means, reverse=True)


def test_a_search_ends_though_a_run_cannot_be_analysed(named_run: Callable[[str], Run]) -> None:
    def unreadable(run: Run, baseline: Run | None, single: Run | None) -> Any:
        raise UnreadableError("the logs are gone; collect them again")

    store = RunStore([named_run("two ranks"), named_run("a slow rank")], unreadable)
    block = _analysed_in_turns(store, {}, "verdict=imbalance")
    assert (block.matching, block.not_analysed, block.pending) == (0, 2, [])
    _, answer = _asked(store, {"startRow": 0}, "verdict=imbalance")
    assert answer["runs-count"]["children"] == "0 of 2 runs, 2 not analysed"
    assert "No analysed run matches this search." in json.dumps(answer["runs-empty"])
    assert [row["verdict"] for row in rows_of(store, {}, "").rows] == [
        "the logs are gone; collect them again"
    ] * 2
    # The page tries again when it is loaded.
    view_at(store, "/", "")
    assert rows_of(store, {}, "verdict=imbalance").undecided == 2


def test_the_name_of_a_fault_finds_no_run_without_faults() -> None:
    runs = [
        listed(number, summary=AnalysisSummary(verdict="allreduce", fault=fault))
        for number, fault in enumerate((True, False))
    ]
    store = RunStore(sources=[Listed(runs)])
    assert [row["verdict"] for row in rows_of(store, {}, "allreduce").rows] == ["Exposed allreduce"]
    assert [row["verdict"] for row in rows_of(store, {}, '"No fault"').rows] == ["No fault"]


@pytest.mark.broad
def test_of_ten_thousand_runs_a_page_of_lines_is_sent(many: RunStore) -> None:
    size, answer = _asked(many, {"startRow": 300, "endRow": 400, "sortModel": []})
    response = answer["runs-grid"]["getRowsResponse"]
    assert response["rowCount"] == 10_000
    assert [line["id"] for line in response["rowData"]] == [
        f"run-{number:05d}" for number in range(300, 400)
    ]
    assert answer["runs-count"]["children"] == "10,000 runs"
    assert answer["runs-waiting"]["data"] == []
    assert size < 150_000
    page = json.dumps(
        view_at(many, "/", "").content, default=lambda component: component.to_plotly_json()
    )
    assert len(page) < 20_000


def test_lines_further_up_are_filled_in_while_somebody_scrolls_on(
    named_run: Callable[[str], Run],
) -> None:
    store = RunStore(replace(named_run("two ranks"), id=f"run-{number}") for number in range(150))
    assert len(rows_of(store, {"startRow": 0}, "").pending) == 100
    assert len(rows_of(store, {"startRow": 100}, "").pending) == 150


@pytest.mark.broad
def test_the_last_lines_and_those_beyond_are_no_more_than_there_are(many: RunStore) -> None:
    assert len(rows_of(many, {"startRow": 9_950}, "").rows) == 50
    assert rows_of(many, {"startRow": 20_000}, "").rows == []
    assert len(rows_of(many, {"startRow": -5}, "").rows) == BLOCK


@pytest.mark.broad
def test_search_and_order_are_the_addresss_own(many: RunStore) -> None:
    request = {"startRow": 0, "sortModel": [{"colId": "throughput", "sort": "desc"}]}
    lines = rows_of(many, request, " verdict=input  training ")
    assert (lines.matching, lines.total) == (5_000, 10_000)
    assert lines.rows[0]["id"] == "run-09999"
    assert lines.query == "?search=verdict%3Dinput++training&sort=throughput&order=desc"
    page = view_at(many, "/", lines.query).content
    (grid,) = of_type(page, "AgGrid")
    sorted_by = {column["colId"]: column["sort"] for column in grid.columnDefs if "sort" in column}
    assert sorted_by == {"throughput": "desc"}
    (search,) = of_type(page, "TextInput")
    assert search.value == "verdict=input  training"
    assert rows_of(many, {}, "").query == ""


@pytest.mark.parametrize(
    "query",
    [
        "?sort=no+such+column&order=desc",
        "?sort=__class__",
        f"?search={'x' * 10_000}",
        "?search=%00%ff",
        "?search=" + "%22" * 50,
    ],
)
def test_an_invented_address_still_gets_a_page(many: RunStore, query: str) -> None:
    assert view_at(many, "/", query).title == "Runs"


@pytest.mark.broad
def test_invented_requests_still_get_lines(many: RunStore) -> None:
    for model in ([], [{}], [{"colId": "id; DROP TABLE runs", "sort": "x"}], None):
        assert len(rows_of(many, {"startRow": None, "sortModel": model}, "").rows) == BLOCK


def test_nothing_found_says_what_to_do_and_a_mistake_what_it_is(many: RunStore) -> None:
    _, answer = _asked(many, {"startRow": 0}, "nothing of the kind")
    said = json.dumps(answer["runs-empty"]["children"])
    assert "No run matches this search." in said
    assert "Show all runs" in said
    assert answer["runs-count"]["children"] == "0 of 10,000 runs"
    _, answer = _asked(many, {"startRow": 0}, "ranks>=many")
    assert answer["runs-search"]["error"].startswith("ranks>=many: ranks takes a whole number")
    assert answer["runs-grid"]["getRowsResponse"]["rowData"] == []


def test_a_line_says_what_is_known() -> None:
    entries = [listed(1), listed(2), listed(50, synthetic=True)]
    listing = RunStore(sources=[Listed(entries)]).listing()
    line = line_of(listing, listing["run-00001"], NOW + timedelta(hours=4))
    assert line["href"] == "/run/run-00001?baseline=run-00050"
    assert (line["name"], line["about"]) == ("training 1", "resnet50 · run-00001")
    assert (line["throughput"], line["step"], line["ranks"]) == ("1,001", "128 ms", "4")
    assert (line["gap"], line["age"]) == ("−4.7%", "5 h")
    assert line["trend"] == [1002.0, 1001.0]
    assert line["trendText"] == "2 runs of this job: 1,001 to 1,002 samples/s, this one 1,001"
    assert line["trendHref"] == "/compare?runs=run-00002,run-00001"
    assert (line["verdict"], line["why"]) == ("Input", "batches come late")
    assert line["sharesText"] == "Input 30.0%, Compute 60.0%, Other 10.0%"


def test_a_run_without_an_analysis_is_shown_as_such() -> None:
    listing = RunStore(
        sources=[Listed([listed(1, summary=AnalysisSummary(), model=None)])]
    ).listing()
    line = line_of(listing, listing["run-00001"], NOW)
    assert line["verdict"] == "not analysed"
    assert (line["stage"], line["shares"], line["trend"]) == ("", [], [])
    assert (line["throughput"], line["step"], line["gap"]) == ("", "", "")


def test_hostile_names_stay_text(named_run: Callable[[str], Run]) -> None:
    evil = {"name": SCRIPT, "source": IMAGE, "hosts": (IMAGE,), "model": f"{SCRIPT}\u202e"}
    store = RunStore([named_run("hostile names")], sources=[Listed([listed(1, **evil)])])
    memory, collected = rows_of(store, {}, "").rows
    assert memory["name"] == collected["name"] == SCRIPT
    assert collected["source"] == IMAGE
    # What turns text round is written out.
    assert "\u202e" not in collected["about"]
    for line in (memory, collected):
        assert re.fullmatch(r"/run/[A-Za-z0-9._~-]+", line["href"])
    (grid,) = of_type(view_at(store, "/", "").content, "AgGrid")
    assert not getattr(grid, "dangerously_allow_code", False)
    drawn = json.dumps([grid.columnDefs, grid.defaultColDef, grid.dashGridOptions])
    assert "markdown" not in drawn
    assert "function" not in drawn
    assert rows_of(store, {}, SCRIPT).matching == 2


def test_a_run_that_cannot_be_analysed_says_why(named_run: Callable[[str], Run]) -> None:
    def unreadable(run: Run, baseline: Run | None, single: Run | None) -> Any:
        raise UnreadableError("the logs are gone; collect them again")

    store = RunStore([named_run("two ranks")], unreadable)
    assert analysed_row(store, "two")["verdict"] == "the logs are gone; collect them again"
    assert analysed_row(store, "nobody") == {}


def test_a_baseline_that_cannot_be_read_costs_only_the_gap(tmp_path: Path) -> None:
    store = RunStore([run_of_job(tmp_path / job.run_id, job) for job in (REAL, SYNTHETIC)])
    assert analysed_row(store, "real")["gap"].startswith("−")


def test_chosen_runs_can_be_compared_the_older_one_first() -> None:
    older, newer = {"id": "a", "startedAt": "2026-01-01"}, {"id": "b", "startedAt": "2026-01-02"}

    def links(*rows: dict[str, str]) -> dict[str, str]:
        return {
            anchor.children: anchor.href for anchor in of_type(comparison_links(rows), "Anchor")
        }

    assert links(newer, older) == {
        "Compare": "/compare?runs=a,b",
        "Scaling": "/scaling?runs=a,b",
    }
    third = {"id": "c", "startedAt": ""}
    assert links(newer, older, third) == {
        "Compare": "/compare?runs=c,a,b",
        "Scaling": "/scaling?runs=c,a,b",
    }
    assert links(older) == links() == {}


def test_of_very_many_chosen_runs_the_latest_are_compared() -> None:
    rows = [{"id": str(number), "startedAt": f"2026-01-01T{number:03}"} for number in range(100)]
    content = comparison_links(rows)
    assert "100 selected, the latest 60 are compared" in texts(content)
    for link in of_type(content, "Anchor"):
        assert link.href.split("=")[1].split(",") == [str(number) for number in range(40, 100)]


def test_below_a_path_every_address_is_below_it(many: RunStore) -> None:
    app = create_app(many, "/proxy/8050/")
    with app.server.test_request_context("/", environ_overrides={"SCRIPT_NAME": "/proxy/8050"}):
        assert rows_of(many, {}, "").rows[0]["href"] == "/proxy/8050/run/run-00000"
        assert compare_address("a", "b") == "/proxy/8050/compare?runs=a,b"
        assert view_at(many, "/proxy/8050/", "").title == "Runs"


# Compare


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    folder = tmp_path_factory.mktemp("jobs")
    settings = {"versions": {"keras": "2.15.0"}, "settings": {"HOROVOD_RANK": "1"}, "model": "x"}
    shared = {"versions": {"keras": "2.12.0"}, "settings": {"HOROVOD_RANK": "0"}, "model": SCRIPT}
    all_jobs = (
        replace(REAL, run_id="slow-input", facts={"run_name": SCRIPT, **settings}),
        replace(REAL, run_id="fast", input_ms=1.0, seed=4, facts={"run_name": "b", **shared}),
        replace(REAL, run_id="same", seed=6, facts={"run_name": "c", **settings}),
        WITHOUT_STAMPS,
        replace(REAL, run_id="few", steps=12, facts={}),
        replace(REAL, run_id="none", steps=0, facts={}),
        SLOW_RANK,
    )
    return RunStore([run_of_job(folder / job.run_id, job) for job in all_jobs])


def test_changes_are_shown_in_words_pictures_and_numbers(jobs: RunStore) -> None:
    view = view_at(jobs, *compare_address("slow-input", "fast").split("?"))
    said = texts(view.content)
    assert any(re.fullmatch(r"B's steps are 2\d\.\d% shorter", text) for text in said)
    assert any("Most of it is input." in text for text in said)
    drawn = charts(view.content)
    assert set(drawn) == {"ledgers", "changes"}
    assert list(drawn["ledgers"].layout.yaxis.ticktext) == ["A", "B"]
    rows = [texts(row) for row in of_type(view.content, "TableTr")]
    (entry,) = [row for row in rows if row[0] == "Input"]
    assert re.match(r"−8\.\d* ± ", entry[3])
    assert entry[4] == "yes"
    (keras,) = [row for row in rows if row[0] == "versions keras"]
    assert keras[1:] == ["2.15.0", "2.12.0"]
    assert not any("HOROVOD_RANK" in text for text in said)
    assert SCRIPT in said
    assert view.title == f"{SCRIPT} and b"


def test_equal_runs_differ_by_no_more_than_noise(jobs: RunStore) -> None:
    said = texts(view_at(jobs, "/compare", "?runs=slow-input,same").content)
    assert "No difference beyond noise" in said
    assert any("the runs recorded the same" in text for text in said)


@pytest.mark.parametrize(
    ("compared", "words"),
    [
        ("without-stamps", None),
        ("few", "Too few steps to tell"),
        ("none", "Not comparable"),
        ("slow", None),
    ],
)
def test_runs_of_every_kind_can_be_compared(
    jobs: RunStore, compared: str, words: str | None
) -> None:
    view = view_at(jobs, "/compare", f"?runs=fast,{compared}")
    said = texts(view.content)
    assert "Compare two runs" in said
    assert "This page cannot be shown" not in said
    if words is not None:
        assert words in said
    comparison = compare(jobs.analysis("fast"), jobs.analysis(compared))
    assert all("  " not in text for text in outcome(comparison))


@pytest.mark.parametrize("query", ["", "?runs=", "?runs=a", "?runs=a,a", "?run=a,b"])
def test_without_two_runs_the_page_says_how_to_choose_them(jobs: RunStore, query: str) -> None:
    said = " ".join(texts(view_at(jobs, "/compare", query).content))
    assert "Select runs in the list" in said


def test_an_unknown_run_cannot_be_compared(jobs: RunStore) -> None:
    assert view_at(jobs, "/compare", "?runs=fast,nobody").title == "No such run"


def test_a_search_that_fails_on_the_server_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not say that no run matches, and the list works again with the next search."""
    store = RunStore(sources=[Listed([listed(number) for number in range(3)])])

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no fault that a search may have is known")

    with monkeypatch.context() as patched:
        patched.setattr(RunListing, "matching", fail)
        _, answer = _asked(store, {"startRow": 0}, "resnet")
    said = json.dumps(answer["runs-empty"])
    assert "The dashboard failed on this search" in answer["runs-search"]["error"]
    assert "This search was not done." in said
    assert "No run matches" not in said
    assert "the search for 'resnet' failed" in caplog.text
    _, answer = _asked(store, {"startRow": 0}, "resnet")
    assert answer["runs-search"]["error"] is None
    assert answer["runs-count"]["children"] == "3 runs"


def test_an_invalid_search_does_not_say_that_no_run_matches(many: RunStore) -> None:
    _, answer = _asked(many, {"startRow": 0}, "ranks>=many")
    said = json.dumps(answer["runs-empty"])
    assert "This search was not done." in said
    assert "ranks takes a whole number" in said


def test_half_a_character_in_a_search_is_no_failure(many: RunStore) -> None:
    _, answer = _asked(many, {"startRow": 0}, "resnet \ud800")
    assert answer["runs-search"]["error"] is None
    assert "No run matches this search." in json.dumps(answer["runs-empty"])
