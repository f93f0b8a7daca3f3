"""The timeline without a browser: its page, its addresses, and what its script is answered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from simulator import Fault, Job, simulate
from simulator.faults import EveryNth, Ramp
from support.links import run_with_links
from support.simulated import in_mesh
from support.step_logs import run_of_job

from stallscope.analysis import analyse
from stallscope.analysis.views.lanes import LANE_STAGES, Lanes
from stallscope.collector.store.run_folders import save_run
from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.app import view_at
from stallscope.dashboard.pages.timeline_page import GENERATION_KEY, KEYS
from stallscope.dashboard.security import require_host
from stallscope.dashboard.store.cache import lanes_of
from stallscope.dashboard.store.run_sources import CollectedRuns
from stallscope.dashboard.timeline import head
from stallscope.dashboard.timeline.answer import end_of, names, start_of
from stallscope.formatting.numbers import amount
from stallscope.run import Run

from .cases import IMAGE, JOBS, ONE_RANK, REAL, SCRIPT, SLOW_RANK
from .content import components, of_type, table_rows, texts
from .timeline_answers import ALL, ask, read


@pytest.fixture(scope="module")
def slow(named_run: Callable[[str], Run]) -> Lanes:
    lanes = lanes_of(analyse(named_run("a slow rank")))
    assert lanes is not None
    return lanes


def test_ranks_are_arranged_by_a_dimension_of_the_mesh() -> None:
    analysis = analyse(in_mesh(simulate(Job(ranks=8, steps=60, run_id="mesh")).run))
    lanes = lanes_of(analysis, "dp")
    assert lanes is not None
    assert lanes.ranks == (0, 2, 4, 6, 1, 3, 5, 7)
    assert lanes.hosts == ("dp 0",) * 4 + ("dp 1",) * 4
    shown = head(analysis, lanes, "mesh", None, {"by": "dp"})
    assert shown["arrangements"] == ["pp", "dp"]
    assert (shown["by"], shown["hosts"]) == ("dp", ["dp 0", "dp 1"])
    # What the script asks for comes in the same order.
    by_host = lanes_of(analysis)
    assert by_host is not None
    assert by_host.ranks == tuple(range(8))
    assert lanes_of(analysis, "no dimension") is by_host
    assert head(analysis, by_host, "mesh", None, {"by": "x"})["by"] == ""
    store, rows = RunStore([analysis.run]), {"rows": "0-8", "lanes": "8"}
    arranged, usual = (read(ask(store, "mesh", **query)) for query in ({**rows, "by": "dp"}, rows))
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    np.testing.assert_array_equal(arranged["stages"], usual["stages"][:, order])


def test_runs_without_a_mesh_have_no_choice_of_arrangements(slow: Lanes, store: RunStore) -> None:
    assert head(store.analysis("slow"), slow, "slow", None, {"by": "dp"})["arrangements"] == []


def test_close_up_every_step_is_sent_as_it_is_in_the_ledger(store: RunStore, slow: Lanes) -> None:
    begin, end = slow.begin[100] / 1e9, slow.end[119] / 1e9
    answer = read(ask(store, "slow", begin=f"{begin:.9f}", end=f"{end:.9f}"))
    assert answer["stepsPerCell"] == 1
    assert answer["firstStep"].tolist() == list(range(100, 120))
    ledger = slow.generations[0].ledger
    for index, name in enumerate(LANE_STAGES):
        np.testing.assert_allclose(
            answer["stages"][index].T, getattr(ledger, name)[100:120] / 1e6, rtol=1e-6, atol=1e-6
        )
    np.testing.assert_allclose(answer["allreduce"], ledger.allreduce[100:120] / 1e6, rtol=1e-6)
    np.testing.assert_array_equal(np.array(slow.ranks)[answer["last"]], ledger.critical[100:120])
    np.testing.assert_array_equal(
        np.array(slow.ranks)[answer["reference"]], ledger.reference[100:120]
    )
    np.testing.assert_allclose(answer["cellEnd"], slow.end[100:120] / 1e9, rtol=1e-12)
    assert answer["names"] == ["100", "119"]


def test_from_afar_cells_are_sent_with_what_lies_between(store: RunStore, slow: Lanes) -> None:
    answer = read(ask(store, "slow", columns="90"))
    assert answer["stepsPerCell"] == 4
    assert answer["cells"] == 60
    assert answer["names"] is None
    assert [epoch for _, epoch in answer["epochs"]] == [0, 1, 2]
    assert len(answer["gaps"]) == 2
    for _, pause, validation, checkpoint, _ in answer["gaps"]:
        assert pause == 0
        assert validation == pytest.approx(0.3, rel=0.1)
        assert checkpoint == pytest.approx(0.1, rel=0.1)
    assert (answer["last"][1:] == slow.row_of(2)).all()


@pytest.mark.any_versions
def test_a_thousand_ranks_fit_into_less_than_a_megabyte(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("a thousand ranks")])
    for changes in ({}, {"columns": "4096", "lanes": "400"}, {"lanes": "1", "columns": "4096"}):
        response = ask(store, "thousand", **changes)
        answer = read(response)
        assert len(response.get_data()) < 1_000_000
        assert len(answer["edges"]) - 1 <= int(changes.get("lanes", 140))
        assert (answer["edges"][0], answer["edges"][-1]) == (0, 1000)


@pytest.mark.broad
def test_what_is_sent_in_16_bits_is_as_exact_as_a_screen(named_run: Callable[[str], Run]) -> None:
    run = named_run("a thousand ranks")
    answer = read(ask(RunStore([run]), "thousand", lanes="400", rows="0-400"))
    assert "scales" in answer
    lanes = lanes_of(analyse(run))
    assert lanes is not None
    view = lanes.view(0, lanes.span, (0, 400), 400, answer["cells"])
    largest = np.nanmax(view.stages)
    np.testing.assert_allclose(answer["stages"], view.stages, atol=largest / 60_000)
    np.testing.assert_allclose(answer["late"][1], view.latest, atol=largest / 30_000)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"begin": "nan"}, "begin must be a number of seconds"),
        ({"begin": "-inf"}, "begin must be a number of seconds"),
        ({"end": "1e400"}, "end must be a number of seconds"),
        ({"end": ""}, "end must be a number of seconds"),
        ({"begin": "5", "end": "5"}, "begin must be before end"),
        ({"rows": "8-0"}, "rows must be two whole numbers"),
        ({"rows": "-3-8"}, "rows must be two whole numbers"),
        ({"rows": SCRIPT}, "rows must be two whole numbers"),
        ({"rows": "0-99999999999999999999"}, "rows must be two whole numbers"),
        ({"lanes": "0"}, "lanes must be a whole number from 1 to 400"),
        ({"lanes": "1e3"}, "lanes must be a whole number"),
        ({"lanes": "٣"}, "lanes must be a whole number"),
        ({"columns": "-1"}, "columns must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    store: RunStore, changes: dict[str, str], said: str
) -> None:
    response = ask(store, "slow", **changes)
    assert response.status_code == 400
    assert said in response.get_json()["error"]
    assert response.mimetype == "application/json"


@pytest.mark.parametrize(
    "changes",
    [
        {"begin": "-1e6", "end": "1e8"},
        {"begin": "1e8", "end": "1.1e8"},
        {"begin": "1", "end": "1.0000000001"},
        {"rows": "7-900000000"},
        {"rows": "500-900"},
        {"lanes": "999999999", "columns": "999999999"},
    ],
)
def test_what_lies_outside_is_answered_with_what_there_is(
    store: RunStore, changes: dict[str, str]
) -> None:
    response = ask(store, "slow", **changes)
    answer = read(response)
    assert answer["cells"] >= 1
    assert len(answer["edges"]) >= 2
    assert len(response.get_data()) < 1_000_000


def test_runs_that_are_not_there_or_have_no_stages_are_not_found(store: RunStore) -> None:
    for run_id, changes in (
        ("nobody", {}),
        ("slow", {"baseline": "nobody"}),
        ("without-stamps", {}),
        ("..passwd", {}),
        (quote(SCRIPT.replace("/", ""), safe=""), {}),
    ):
        response = ask(store, run_id, **changes)
        assert response.status_code == 404
        assert response.get_json()["error"]


def test_a_failure_is_a_sentence_and_a_line_in_the_terminal(
    named_run: Callable[[str], Run], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(run: Run, baseline: Run | None, single: Run | None) -> Any:
        raise ZeroDivisionError("a bug")

    response = ask(RunStore([named_run("two ranks")], broken), "two")
    assert response.status_code == 500
    assert "terminal" in response.get_json()["error"]
    assert "a bug" not in response.get_data(as_text=True)
    assert "ZeroDivisionError" in caplog.text


def test_answers_are_guarded_as_all_others(store: RunStore) -> None:
    app = create_app(store)
    require_host(app.server, "127.0.0.1", 8050, "elsewhere")
    client = app.server.test_client()
    local, foreign = (
        client.get("/timeline/slow", query_string=ALL, headers={"Host": host})
        for host in ("127.0.0.1:8050", "evil.example")
    )
    assert (local.status_code, foreign.status_code) == (200, 403)
    assert local.headers["X-Content-Type-Options"] == "nosniff"
    assert local.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert client.post("/timeline/slow", headers={"Host": "127.0.0.1:8050"}).status_code == 405


def test_what_was_not_measured_is_sent_as_nothing(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(REAL, ranks=9, run_id="torn"))
    lost = (run.steps["rank"].to_numpy() == 4) & (run.steps["step"].to_numpy() >= 100)
    store = RunStore([replace(run, steps=run.steps.filter(~lost))])
    answer = read(ask(store, "torn"))
    assert np.isnan(answer["stages"][:, 4, 100:]).all()
    assert not np.isnan(answer["stages"][:, 4, :100]).any()
    assert not np.isnan(np.delete(answer["stages"], 4, axis=1)).any()


def test_places_are_named_by_step_and_found_again(slow: Lanes) -> None:
    for begin, end in (
        (int(slow.begin[50]), int(slow.end[150])),
        (int(slow.begin[50]), int(slow.end[52])),
        (int(slow.begin[50]) + 7_000_000, int(slow.begin[51]) + 3_000_000),
        (int(slow.begin[50]) + 7_000_000, int(slow.begin[50]) + 9_000_000),
    ):
        places = names(slow, begin, end)
        assert places is not None
        assert start_of(slow, places[0]) == pytest.approx(begin, abs=100_000)
        assert end_of(slow, places[1]) == pytest.approx(end, abs=100_000)
    assert names(slow, 0, slow.span) is None
    assert names(slow, int(slow.begin[50]), int(slow.end[150])) == ("50", "150")


def test_where_a_step_begins_is_that_step_when_the_script_asks(
    store: RunStore, slow: Lanes
) -> None:
    """The script has seconds; what they are rounded to must not be the step before."""
    for at in range(40, 60):
        begin, end = (f"{ns / 1e9:.9f}" for ns in (slow.begin[at], slow.end[at + 34]))
        answer = read(ask(store, "slow", begin=begin, end=end))
        assert answer["names"] == [str(at), str(at + 34)]


@pytest.mark.parametrize("text", [None, "", "x", "-3", "1e3", "nan", SCRIPT, "٣", "1" * 40, "1."])
def test_places_that_say_nothing_are_nowhere(slow: Lanes, text: str | None) -> None:
    assert start_of(slow, text) is None
    assert end_of(slow, text) is None


def test_places_beyond_the_run_are_its_ends(slow: Lanes) -> None:
    assert start_of(slow, "999999") == slow.begin[-1]
    assert end_of(slow, "999999") == slow.span


@pytest.mark.parametrize(
    ("query", "view", "rows", "row"),
    [
        ({}, (0, 239), [0, 8], None),
        ({"from": "20", "to": "30"}, (20, 30), [0, 8], None),
        ({"from": "30", "to": "20"}, (0, 239), [0, 8], None),
        ({"from": SCRIPT, "to": "²"}, (0, 239), [0, 8], None),
        ({"rank": "2"}, (0, 239), [0, 8], 2),
        ({"rank": "²"}, (0, 239), [0, 8], None),
        ({"ranks": "2-5"}, (0, 239), [2, 6], None),
        ({"ranks": "5-2"}, (0, 239), [0, 8], None),
        ({"ranks": "2-5-7"}, (0, 239), [0, 8], None),
    ],
)
def test_an_address_says_what_is_looked_at_first(
    named_run: Callable[[str], Run],
    slow: Lanes,
    query: dict[str, str],
    view: tuple[int, int],
    rows: list[int],
    row: int | None,
) -> None:
    contents = head(analyse(named_run("a slow rank")), slow, "slow", None, query)
    assert contents["view"] == pytest.approx([slow.begin[view[0]] / 1e9, slow.end[view[1]] / 1e9])
    assert (contents["rows"], contents["row"]) == (rows, row)


def test_pauses_are_marked_on_the_lanes_of_their_ranks() -> None:
    collections = Fault("compute", 100.0, ranks=[1], when=EveryNth(20), cause="garbage_collection")
    facts = {"interruptions": ["garbage_collection", "compilation"]}
    run = simulate(Job(ranks=2, steps=100, faults=(collections,), facts=facts)).run
    analysis = analyse(run)
    lanes = lanes_of(analysis)
    assert lanes is not None
    contents = head(analysis, lanes, run.id, None, {})
    assert contents["pauseNames"] == [
        ["garbage collection", "garbage collections"],
        ["compilation", "compilations"],
        ["save", "saves"],
    ]
    rows, kinds = zip(*((row, kind) for *_, row, kind in contents["pauses"]), strict=True)
    assert {*rows} == {lanes.row_of(1)}
    assert {*kinds} == {0}
    for begin, end, _, _ in contents["pauses"]:
        assert 0 <= begin < end <= contents["span"]
    said = texts(view_at(RunStore([run]), f"/run/{run.id}/timeline", "").content)
    assert any("garbage collection, compilation, or a save" in text for text in said)


@pytest.mark.broad
def test_a_rank_of_a_thousand_is_shown_among_its_neighbours(
    named_run: Callable[[str], Run],
) -> None:
    analysis = analyse(named_run("a thousand ranks"))
    lanes = lanes_of(analysis)
    assert lanes is not None
    contents = head(analysis, lanes, "thousand", None, {"rank": "700"})
    assert contents["rows"] == [692, 708]
    assert contents["named"] == [700]
    assert len(json.dumps(contents)) < 200_000


@pytest.mark.parametrize(
    ("slow", "how"), [(True, "on their wall clocks"), (False, "on the ends of their allreduces")]
)
def test_the_page_says_how_the_hosts_were_aligned(slow: bool, how: str) -> None:
    run = run_with_links(slow)
    said = texts(view_at(RunStore([run]), f"/run/{run.id}/timeline", "").content)
    assert any(f"The hosts' clocks were aligned {how}" in text for text in said)


def test_the_page_says_what_it_shows_and_leads_to_slow_ranks(store: RunStore) -> None:
    content = view_at(store, "/run/slow/timeline", "").content
    said = texts(content)
    assert any(text.startswith("8 ranks, 240 steps in ") for text in said)
    assert any("hosts' clocks were aligned" in text for text in said)
    # Its lane is marked in every step.
    assert any("Rank 2 is late all the time; beyond that, no step is" in text for text in said)
    healthy = texts(view_at(store, "/run/real/timeline", "").content)
    assert any(" s. No step is unusually late. " in text for text in healthy)
    assert "Slow rank 2" in said
    assert {key for key, _ in KEYS} <= set(said)
    drawn = next(
        component for component in components(content) if getattr(component, "id", "") == "timeline"
    )
    assert drawn.role == "application"
    assert drawn.tabIndex == 0


@pytest.mark.parametrize(
    ("job", "gaps", "marks"),
    [
        (
            replace(SLOW_RANK, steps=40),
            ["Validation", "Checkpoints", "Between epochs"],
            [
                "Later than the reference rank by {} or more",
                "Last rank, or later than the reference rank by {} or more",
            ],
        ),
        (
            replace(REAL, steps=40, epochs=1, validation_ms=0, checkpoint_ms=0),
            [],
            ["Last rank, or later than the reference rank by {} or more"],
        ),
        (replace(ONE_RANK, steps=40, checkpoint_ms=0), ["Validation", "Between epochs"], []),
    ],
)
def test_the_legend_names_only_what_the_run_has(
    tmp_path: Path, job: Any, gaps: list[str], marks: list[str]
) -> None:
    run = run_of_job(tmp_path, job)
    lanes = lanes_of(analyse(run))
    assert lanes is not None
    store = RunStore([run])
    content = view_at(store, f"/run/{store.runs()[0].id}/timeline", "").content
    (legends,) = (
        component
        for component in components(content)
        if "timeline-legends" in getattr(component, "className", "")
    )
    parts = {
        getattr(part, "data-legend", "gaps"): texts(part)
        for part in of_type(legends, "Div")
        if part is not legends
    }
    waiting = ["Waiting for slow ranks"] if len(lanes.ranks) > 1 else []
    allreduce = ["Exposed allreduce"] if len(lanes.ranks) > 1 else []
    assert parts["stages"] == ["Input", "Compute", "Other", *waiting, *allreduce]
    assert parts.get("gaps", []) == gaps
    said = [text for part in ("late", "last") for text in parts.get(part, [])]
    assert said == [mark.format(amount(lanes.late_from, "ms")) for mark in marks]


def test_without_stages_the_page_says_why(store: RunStore) -> None:
    said = texts(view_at(store, "/run/without-stamps/timeline", "").content)
    assert "There are no stages to draw" in said
    assert f"the model runs eagerly {SCRIPT}" in " ".join(said)


@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_run_has_a_timeline_and_steps(
    name: str, named_run: Callable[[str], Run]
) -> None:
    store = RunStore([named_run(name)])
    key = store.runs()[0].id
    for page in ("timeline", "step/5"):
        view = view_at(store, f"/run/{key}/{page}", "")
        assert named_run(name).name in texts(view.content)
        assert "This page cannot be shown" not in texts(view.content)


def test_hosts_are_sent_as_text(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("hostile names")])
    content = view_at(store, f"/run/{store.runs()[0].id}/timeline", "").content
    sent = next(
        component.data for component in of_type(content, "Store") if component.id == "timeline-head"
    )
    assert sent["hosts"][0] == IMAGE
    assert SCRIPT not in sent["address"]


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (
            [Fault("compute", 40, ranks=(3,), when=Ramp())],
            r"Rank 3 is late in 7\d\.\d% of steps; beyond that, no step is unusually late\.",
        ),
        (
            [Fault("compute", 40, ranks=(1, 2, 3, 4, 5), rotating=5)],
            r"A rank is late in 100% of steps, not always the same; beyond that, no step is ",
        ),
        (
            [Fault("compute", 40, ranks=(1, 9), when=Ramp())],
            r"Ranks 1 and 9 are late in 7\d\.\d% to 7\d\.\d% of steps; beyond that, 1 step is ",
        ),
        # Marked in the unusual steps alone.
        (
            [Fault("compute", 40, ranks=(3,), when=EveryNth(9))],
            r" s\. 4\d steps are unusually late\.",
        ),
        (
            [Fault("compute", 40, hosts=("host-1",))],
            r"Host-1 \(ranks 8–15\) is late all the time; beyond that, no step is unusually late\.",
        ),
    ],
)
def test_ranks_whose_lanes_are_full_of_marks_are_named(faults: list[Fault], sentence: str) -> None:
    run = simulate(Job(ranks=16, steps=400, faults=faults)).run
    said = texts(view_at(RunStore([run]), f"/run/{run.id}/timeline", "").content)
    assert any(re.search(sentence, text) for text in said), said
    assert ("Slow host-1" in said) is bool(faults[0].hosts)


def test_a_step_begins_with_who_was_last_and_why(store: RunStore) -> None:
    content = view_at(store, "/run/slow/step/100", "").content
    said = texts(content)
    title = next(text for text in said if text.startswith("Step 100 took "))
    assert "rank 2 was last, " in title
    evidence = said[said.index(title) + 1]
    assert evidence.startswith("Its compute took ")
    assert "more than on rank " in evidence
    assert re.search(r"Together, the other ranks waited \S+ ms for it\.", evidence)
    # The sentence and the table compare with the same step.
    more = re.search(r"and (\S+) ms (more|less) than in the mean step", evidence)
    assert more is not None
    head, *rows = table_rows(content, "Against the mean step")
    assert head[3:] == ["Mean step, ms", "Difference, ms"]
    (difference,) = [row[4] for row in rows if row[0] == "Compute"]
    assert difference == f"{'+' if more[2] == 'more' else '−'}{more[1]}"


def test_a_step_says_what_paused_its_ranks(tmp_path: Path) -> None:
    pauses = Fault("compute", 100.0, ranks=[1], when=EveryNth(20), cause="garbage_collection")
    run = simulate(Job(ranks=4, steps=300, faults=[pauses])).run
    save_run(run, tmp_path)
    store = RunStore(sources=[CollectedRuns(tmp_path)])
    said = " ".join(texts(view_at(store, f"/run/{run.id}/step/100", "").content))
    assert re.search(r"Rank 1 collected garbage for \S+ ms\.", said)
    assert "collected garbage" not in " ".join(
        texts(view_at(store, f"/run/{run.id}/step/101", "").content)
    )
    overview = view_at(store, f"/run/{run.id}", "").content
    _, row = table_rows(overview, "Causes inside the step")
    assert row[:2] == ["Garbage collection", "1"]
    # Of a large run, pages of the timeline and of a step keep no steps in memory.
    view_at(store, f"/run/{run.id}/timeline", "")
    assert not {"steps", "intervals"} & vars(store.analysis(run.id).run).keys()
    view_at(store, f"/run/{run.id}/step/100", "")
    assert "steps" not in vars(store.analysis(run.id).run)


def test_a_step_says_how_long_ranks_waited_for_pythons_lock() -> None:
    thread = {"name": "<b>feeder</b>", "file": "/job/feed.py", "line": 7, "function": "fill"}
    facts = {
        "interruptions": ["interpreter"],
        "interpreter": {"looks": 900, "waits": 9, "threads": [{**thread, "waits": 9}]},
    }
    waits = Fault("compute", 40.0, ranks=[1], when=EveryNth(20), cause="interpreter")
    run = simulate(Job(ranks=4, steps=300, faults=[waits], facts=facts)).run
    store = RunStore([run])
    content = view_at(store, f"/run/{run.id}/step/100", "").content
    said = " ".join(texts(content))
    assert re.search(
        r"Rank 1 waited for Python's lock for about \S+ ms \(\S+–\S+ ms\); \d+ looks", said
    )
    # As a text, which the browser does not take for a page's code.
    assert "Over all steps, <b>feeder</b> in fill (feed.py:7) had the lock most often then." in said
    assert not of_type(content, "Markdown")
    assert "Python's lock" not in " ".join(
        texts(view_at(store, f"/run/{run.id}/step/101", "").content)
    )


def test_a_step_leads_to_those_around_it_and_back_to_the_timeline(store: RunStore) -> None:
    content = view_at(store, "/run/real/step/100", "?baseline=synthetic").content
    links = {anchor.children: anchor.href for anchor in of_type(content, "Anchor")}
    assert links["‹ Previous step"] == "/run/real/step/99?baseline=synthetic"
    assert links["Next step ›"] == "/run/real/step/101?baseline=synthetic"
    assert links["In the timeline"].startswith(
        "/run/real/timeline?baseline=synthetic&from=96&to=104&"
    )
    first = {
        anchor.children
        for anchor in of_type(view_at(store, "/run/real/step/0", "").content, "Anchor")
    }
    assert "‹ Previous step" not in first


def test_a_step_of_a_thousand_ranks_shows_the_latest_and_the_spread(
    named_run: Callable[[str], Run],
) -> None:
    store = RunStore([named_run("a thousand ranks")])
    content = view_at(store, "/run/thousand/step/30", "").content
    said = texts(content)
    assert "Spread of the ranks" in said
    assert any(text.startswith("The 31 latest of 1,000 ranks") for text in said)
    tables = [
        table.data["body"] for table in of_type(content, "Table") if getattr(table, "data", None)
    ]
    assert tables[-1][0][0] == "700"
    assert len(tables[-1]) == 1000


@pytest.mark.parametrize(
    ("step", "title"),
    [
        ("240", "This run has no step 240"),
        ("99999999999999999", "This run has no step"),
        ("-1", "No such step"),
        ("²", "No such step"),
        (SCRIPT, "No such step"),
        ("1" * 400, "No such step"),
    ],
)
def test_a_step_that_is_not_there_is_a_sentence(store: RunStore, step: str, title: str) -> None:
    said = texts(view_at(store, f"/run/slow/step/{quote(step, safe='')}", "").content)
    assert any(text.startswith(title) for text in said)
    assert "The whole run in the timeline" in said


def test_a_step_that_most_ranks_lack_says_so(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(SLOW_RANK, run_id="torn"))
    lost = (run.steps["rank"].to_numpy() > 1) & (run.steps["step"].to_numpy() == 50)
    store = RunStore([replace(run, steps=run.steps.filter(~lost))])
    said = texts(view_at(store, "/run/torn/step/50", "").content)
    assert "Step 50 is not in the ledger" in said
    assert any(text.startswith("2 ranks recorded it") for text in said)


def test_without_stages_a_step_says_why(store: RunStore) -> None:
    said = texts(view_at(store, "/run/without-stamps/step/5", "").content)
    assert "The stages of this step are not known" in said


def test_the_keys_are_those_of_the_docs() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "dashboard.md").read_text()
    for key, what in (*KEYS, GENERATION_KEY):
        assert f"| {key} | {what} |" in docs
