"""What the pages say, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from dash import Dash
from flask import Flask
from support.printed_steps import LABELS, PROGRAMS, labelled
from support.step_logs import run_of_job, write_job

from stallscope.analysis import ENTRIES
from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.app import view_at
from stallscope.dashboard.pages import PAGES
from stallscope.dashboard.pages.runs_page import analysed_row, rows_of
from stallscope.dashboard.security import require_host
from stallscope.errors import UnreadableError
from stallscope.parsers import read
from stallscope.run import Run
from stallscope.text.vocabulary import TITLES

from .cases import IMAGE, JOBS, ONE_RANK, REAL, SCRIPT, SYNTHETIC
from .content import assert_known_components, charts, of_type, table_rows, texts


def _ask(app: Dash, pathname: str, search: str = "") -> Any:
    """The content of the page at an address, through the app's own callback."""
    body = {
        "output": "..page.children...loaded-page.data..",
        "outputs": [
            {"id": "page", "property": "children"},
            {"id": "loaded-page", "property": "data"},
        ],
        "inputs": [
            {"id": "address", "property": "pathname", "value": pathname},
            {"id": "address", "property": "search", "value": search},
        ],
        "changedPropIds": ["address.pathname"],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body)
    assert answer.status_code == 200
    return answer.get_json()["response"]


def _region(content: Any, label: str) -> Any:
    """The frame of a table, by its label."""
    return next(
        component
        for component in of_type(content, "Div")
        if getattr(component, "role", "") == "region" and getattr(component, "aria-label") == label
    )


def test_two_apps_in_one_process_show_each_its_own_runs(tmp_path: Path) -> None:
    apps = {
        name: create_app(
            RunStore([run_of_job(tmp_path / name, replace(REAL, ranks=1, run_id=name))])
        )
        for name in ("first", "second")
    }
    for name, foreign in (("first", "second"), ("second", "first")):
        listed = json.dumps(_ask(apps[name], "/nowhere"))
        assert f"/run/{name}" in listed
        assert f"/run/{foreign}" not in listed
        assert "No such run" in json.dumps(_ask(apps[name], f"/run/{foreign}"))


def test_the_list_says_what_holds_each_run_back(store: RunStore) -> None:
    links = {line["name"]: line["href"] for line in rows_of(store, {}, "").rows}
    assert links["resnet on pictures"] == "/run/real?baseline=synthetic"
    assert links["resnet on noise"] == "/run/synthetic"
    line = analysed_row(store, "slow")
    assert line["verdict"] == "Slow rank 2"
    assert line["step"].endswith(" ms")
    assert float(line["throughput"].replace(",", "")) > 0


def test_the_overview_begins_with_the_verdict_and_what_fixing_it_gains(store: RunStore) -> None:
    said = texts(view_at(store, "/run/real", "?baseline=synthetic").content)
    verdict = said.index("Input holds this run back: batches come late")
    gain = next(number for number, text in enumerate(said) if text.startswith("as fast ("))
    assert verdict < gain < said.index("Step time by cause")
    assert re.fullmatch(r"1\.3\d+×", said[gain - 1])
    assert "95% interval" in said[gain]
    # The evidence has the time that it saves.
    assert "saves" not in said[gain]
    assert "What to do" in said


def test_code_in_advice_looks_like_code(store: RunStore) -> None:
    content = view_at(store, "/run/real", "?baseline=synthetic").content
    assert "dataset = dataset.prefetch(tf.data.AUTOTUNE)" in [
        text for component in of_type(content, "Code") for text in texts(component)
    ]
    assert not any("`" in text for text in texts(content))


def test_the_overview_shows_every_picture_with_its_sentence(store: RunStore) -> None:
    content = view_at(store, "/run/real", "?baseline=synthetic").content
    assert set(charts(content)) == {"by-cause", "gains", "ranks", "step-time", "job"}
    labelled = [
        component
        for component in of_type(content, "Div")
        if getattr(component, "role", "") in ("img", "figure")
    ]
    said = texts(content)
    assert len(labelled) == 5
    for picture in labelled:
        title, _, sentence = getattr(picture, "aria-label").partition(". ")
        assert title in said
        assert sentence in said


def test_every_table_of_the_overview_is_folded_below_its_picture(store: RunStore) -> None:
    content = view_at(store, "/run/slow", "?baseline=synthetic").content
    summaries = []
    for details in of_type(content, "Details"):
        assert not hasattr(details, "open")
        assert len(of_type(details, "Table")) == 1
        summaries += texts(of_type(details, "Summary"))
    assert summaries == [
        "As a table",
        "As a table",
        "Step time of the typical rank",
        "Stragglers",
        "All 8 ranks",
    ]
    assert len(of_type(content, "Table")) == len(summaries)


def test_the_overview_has_a_lane_of_each_rank_that_printed(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(labelled(PROGRAMS["ImageNet"], LABELS["gloo"]))
    (run,) = read(str(tmp_path))
    content = view_at(RunStore([run]), f"/run/{quote(run.id, safe='')}", "").content
    assert set(charts(content)) == {"gains", "step-time", "printed-ranks"}
    assert list(charts(content)["printed-ranks"].layout.yaxis.ticktext) == ["rank 0", "rank 1"]
    shown = texts(content)
    assert "Step time of each rank over the run" in shown
    # What the weakest and the strongest colour stand for.
    assert [text for text in shown if re.fullmatch(r"\d+ ms and (less|more)", text)]


def test_without_a_baseline_there_is_no_comparison(store: RunStore) -> None:
    content = view_at(store, "/run/real", "").content
    assert list(charts(content)["by-cause"].layout.yaxis.ticktext) == ["this run"]
    assert "Baseline, ms" not in texts(content)
    assert "Lost against the baseline" not in texts(content)


def test_the_ledger_table_holds_all_entries_and_their_sum(store: RunStore) -> None:
    content = view_at(store, "/run/real", "?baseline=synthetic").content
    rows = [
        texts(row) for row in of_type(_region(content, "Step time of the typical rank"), "TableTr")
    ]
    assert [row[0] for row in rows[1:]] == [*(TITLES[name] for name in ENTRIES), "Step"]
    assert rows[0][-2:] == ["Baseline, ms", "Difference, ms"]
    parts = [Decimal(row[1].partition(" ±")[0]) for row in rows[1:]]
    assert sum(parts[:-1]) == parts[-1]


def test_the_overview_says_who_makes_the_others_wait(store: RunStore) -> None:
    content = view_at(store, "/run/slow", "").content
    rows = [texts(row) for row in of_type(_region(content, "Stragglers"), "TableTr")]
    assert rows[0][:3] == ["Who", "When", "Stage"]
    assert rows[1][:3] == ["rank 2", "all the time", "Compute"]
    assert re.fullmatch(r"1[12]\.\d+ ± \S+ ms", rows[1][3])
    healthy = view_at(store, "/run/real", "").content
    labels = [getattr(component, "aria-label", "") for component in of_type(healthy, "Div")]
    assert "Ranks" in labels
    assert "Stragglers" not in labels


def test_the_page_of_the_baseline_takes_the_loss_apart_against_both_baselines(
    tmp_path: Path,
) -> None:
    jobs = {"real": REAL, "synthetic": SYNTHETIC, "one": ONE_RANK}
    store = RunStore([run_of_job(tmp_path / name, job) for name, job in jobs.items()])
    content = view_at(store, "/run/real/baseline", "?baseline=synthetic").content
    rows = [texts(row) for row in of_type(_region(content, "Against the baselines"), "TableTr")]
    titles = [row[0] for row in rows]
    assert "Baseline: step on synthetic data, 4 ranks" in titles
    assert "Step on synthetic data, 1 rank" in titles
    assert titles[-1] == "Lost to scale"
    (stall,) = [row for row in rows if row[0] == "of it: input stall"]
    assert re.match(r"\+8\.\d+ ± ", stall[1])
    assert "Against the baselines" not in texts(view_at(store, "/run/real/baseline", "").content)
    assert "Against the baselines" not in texts(
        view_at(store, "/run/real", "?baseline=synthetic").content
    )


@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_run_has_an_overview(name: str, named_run: Callable[[str], Run]) -> None:
    run = named_run(name)
    store = RunStore([run])
    key = store.runs()[0].id
    content = view_at(store, f"/run/{key}", "").content
    said = texts(content)
    assert run.name in said
    assert "This page cannot be shown" not in said
    assert f"{run.size:,} rank" in next(text for text in said if " on " in text and " host" in text)


def test_a_baseline_without_stages_compares_step_times_only(store: RunStore) -> None:
    content = view_at(store, "/run/real", "?baseline=without-stamps").content
    assert len(charts(content)["by-cause"].layout.yaxis.ticktext) == 1
    assert "not measured" in texts(content)


def test_logs_of_rank_0_only_are_distinguished_from_a_slow_network(tmp_path: Path) -> None:
    for log in write_job(tmp_path, REAL)[1:]:
        log.unlink()
    content = view_at(RunStore(read(str(tmp_path))), "/run/real", "").content
    assert "Only rank 0's log is here" in texts(content)
    assert "These logs cannot show what holds the run back" in texts(content)


@pytest.mark.broad
def test_a_thousand_ranks_are_all_in_the_table_and_the_latest_in_the_picture(
    named_run: Callable[[str], Run],
) -> None:
    content = view_at(RunStore([named_run("a thousand ranks")]), "/run/thousand", "").content
    table = next(
        component for component in of_type(content, "Table") if getattr(component, "data", None)
    )
    assert len(table.data["body"]) == 1000
    assert table.data["body"][0][0] == "700 (slow)"
    labels = charts(content)["ranks"].layout.yaxis.ticktext
    assert len(labels) == 9
    assert labels[0] == "<b>rank 700</b>"
    assert labels[-1] == "mean of the other 992"


def test_what_was_not_measured_says_so_and_is_never_nought(store: RunStore) -> None:
    content = view_at(store, "/run/without-stamps", "").content
    _, *ranks = table_rows(content, "Ranks")
    for row in ranks:
        assert row[2:8] == ["not measured"] * 6
    assert charts(content) == {}
    assert "These logs cannot show what holds the run back" in texts(content)


@pytest.mark.parametrize(
    "pathname",
    ["/run/nobody", "/run/..%2F..%2Fetc%2Fpasswd", "/run/%2e%2e", f"/run/{quote(SCRIPT, safe='')}"],
)
def test_an_unknown_run_leads_back_to_those_there_are(store: RunStore, pathname: str) -> None:
    view = view_at(store, pathname, "")
    assert view.title == "No such run"
    assert "This address names a run that is not open here." in texts(view.content)
    assert len(of_type(view.content, "Anchor")) == len(store.runs())


def test_an_unknown_page_leads_back_to_the_runs(store: RunStore) -> None:
    view = view_at(store, "/run/real/unheard-of", "")
    assert view.title == "No such page"
    assert len(of_type(view.content, "Anchor")) == len(store.runs())


def test_an_unknown_baseline_is_named_and_left_out(store: RunStore) -> None:
    content = view_at(store, "/run/real", "?baseline=nobody").content
    assert "there is no run 'nobody' to compare with" in texts(content)
    assert "Lost against the baseline" not in texts(content)


def test_a_run_that_cannot_be_analysed_is_a_page_and_a_line(
    named_run: Callable[[str], Run], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(run: Run, baseline: Run | None, single: Run | None) -> Any:
        raise ZeroDivisionError("a bug")

    def unreadable(run: Run, baseline: Run | None, single: Run | None) -> Any:
        raise UnreadableError("the logs are gone; collect them again")

    store = RunStore([named_run("two ranks")], broken)
    with caplog.at_level(logging.ERROR):
        assert view_at(store, "/run/two", "").title == "This page cannot be shown"
        assert "could not be analysed" in analysed_row(store, "two")["verdict"]
    assert "ZeroDivisionError" in caplog.text
    assert "a bug" not in " ".join(texts(view_at(store, "/run/two", "").content))

    store = RunStore([named_run("two ranks")], unreadable)
    assert "the logs are gone; collect them again" in texts(view_at(store, "/run/two", "").content)


def test_hostile_names_are_text_and_nothing_else(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("hostile names")])
    key = store.runs()[0].id
    assert re.fullmatch(r"[A-Za-z0-9._-]+", key)
    content = view_at(store, f"/run/{key}", "").content
    assert SCRIPT in texts(content)
    assert_known_components(content)
    app = create_app(store)
    answer = _ask(app, f"/run/{key}")
    assert answer["page"]["children"]["props"]["children"]
    for address in ("/", f"/run/{key}", f"/run/{SCRIPT}"):
        index = app.server.test_client().get(address).get_data(as_text=True)
        assert SCRIPT not in index
        assert IMAGE not in index


def test_pages_have_paths_of_their_own() -> None:
    assert len({page.path for page in PAGES}) == len(PAGES)


def test_every_answer_carries_the_headers(store: RunStore) -> None:
    app = create_app(store)
    require_host(app.server, "127.0.0.1", 8050, "elsewhere")
    client = app.server.test_client()
    local = "127.0.0.1:8050"
    answers = [
        client.open(address, method=method, headers={"Host": host}, buffered=True)
        for address, method, host in (
            ("/", "GET", local),
            ("/run/real", "GET", local),
            ("/assets/stallscope.css", "GET", local),
            ("/assets/none.css", "GET", local),
            ("/_dash-layout", "GET", local),
            ("/", "POST", local),
            ("/", "GET", "evil.example"),
        )
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404, 200, 405, 403]
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_the_policy_allows_the_inline_scripts_there_are_and_no_other_host(store: RunStore) -> None:
    client = create_app(store).server.test_client()
    answer = client.get("/")
    index = answer.get_data(as_text=True)
    policy = dict(
        part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in policy["script-src"]
    assert not re.search(r"https?:|\*", answer.headers["Content-Security-Policy"])
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", index, re.DOTALL)
    inline = [text for given, text in scripts if "src=" not in given and "json" not in given]
    assert inline
    for text in inline:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy["script-src"]
    assert all(
        address.startswith("/") for address in re.findall(r"(?:src|href)=\"([^\"]*)\"", index)
    )


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8050", 200),
        ("localhost:8050", 200),
        ("LOCALHOST:8050", 200),
        ("[::1]:8050", 200),
        ("alpha.example:8050", 200),
        ("127.0.0.1", 403),
        ("127.0.0.1:8051", 403),
        ("evil.example:8050", 403),
        ("127.0.0.1.evil.example:8050", 403),
        ("192.168.0.7:8050", 403),
        ("", 403),
    ],
)
def test_only_its_own_names_are_answered(store: RunStore, host: str, status: int) -> None:
    app = create_app(store)
    require_host(app.server, "alpha.example", 8050, "this dashboard is elsewhere")
    client = app.server.test_client()
    answer = client.get("/_dash-layout", headers={"Host": host})
    assert answer.status_code == status
    if status == 403:
        assert answer.get_data(as_text=True) == "this dashboard is elsewhere\n"


def test_on_the_usual_port_the_name_alone_will_do() -> None:
    for port, status in ((80, 404), (8050, 403)):
        server = Flask(__name__)
        require_host(server, "127.0.0.1", port, "elsewhere")
        answer = server.test_client().get("/", headers={"Host": "localhost"})
        assert answer.status_code == status


def test_no_development_tool_is_on(store: RunStore) -> None:
    app = create_app(store)
    index = app.server.test_client().get("/").get_data(as_text=True)
    config = json.loads(re.search(r'id="_dash-config"[^>]*>(.*?)</script>', index)[1])  # type: ignore[index]
    assert not app.server.debug
    assert config["ui"] is False
    assert config["props_check"] is False
    assert "hot_reload" not in config


def test_the_synthetic_run_of_the_same_job_is_the_baseline(store: RunStore) -> None:
    assert store.baseline_of("real") == "synthetic"
    assert store.baseline_of("synthetic") is None
    assert SYNTHETIC.run_id in store
