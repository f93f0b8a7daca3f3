"""A run out of the dashboard: report, figures and trace, each at an address of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from werkzeug.test import TestResponse

from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.components.run_head import run_head
from stallscope.dashboard.security import require_token

from .cases import SCRIPT
from .content import components

TOKEN = "a-token-of-some-length"


def asked(store: RunStore, path: str, prefix: str = "/", **more: Any) -> TestResponse:
    return create_app(store, prefix).server.test_client().get(path, buffered=True, **more)


def test_the_report_is_shown_and_needs_nothing_else(store: RunStore) -> None:
    answer = asked(store, "/download/real/report?baseline=synthetic")
    assert answer.status_code == 200
    assert answer.mimetype == "text/html"
    assert "attachment" not in answer.headers["Content-Disposition"]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    text = answer.get_data(as_text=True)
    assert "Against the synthetic baseline" in text
    assert "<script" not in text


def test_without_a_baseline_nothing_is_held_against_one(store: RunStore) -> None:
    text = asked(store, "/download/real/report").get_data(as_text=True)
    assert "Against the synthetic baseline" not in text
    document = json.loads(asked(store, "/download/real/json").data)
    assert document["baseline"] is None


def test_figures_are_a_file_named_after_the_run(store: RunStore) -> None:
    answer = asked(store, "/download/real/json?baseline=synthetic")
    assert answer.headers["Content-Disposition"] == "attachment; filename=resnet-on-pictures.json"
    document = json.loads(answer.data)
    assert document["schema_version"] == 1
    assert document["baseline"]["id"] == "synthetic"


@pytest.mark.parametrize(
    "path", ["nobody/report", "real/report?baseline=nobody", "real/other", "real/json/more"]
)
def test_what_is_not_there_is_a_sentence(store: RunStore, path: str) -> None:
    answer = asked(store, f"/download/{path}")
    if path.endswith("more"):
        assert answer.mimetype == "text/html"  # the app's own page says so
        return
    assert answer.status_code == 404
    assert answer.mimetype == "text/plain"
    assert "Traceback" not in answer.get_data(as_text=True)


def test_a_hostile_name_is_no_name_of_a_file(store: RunStore) -> None:
    key = next(run.id for run in store.runs() if run.entry.name == SCRIPT)
    answer = asked(store, f"/download/{key}/report")
    assert answer.headers["Content-Disposition"] == "inline; filename=script-alert-1-script.html"
    assert SCRIPT not in answer.get_data(as_text=True)


def test_links_stand_below_the_prefix_and_name_the_baseline(store: RunStore) -> None:
    app = create_app(store, "/proxy/8050/")
    with app.server.test_request_context("/", environ_overrides={"SCRIPT_NAME": "/proxy/8050"}):
        analysis = store.analysis("real", "synthetic")
        head = run_head(analysis, "real", "synthetic", store.runs())
    links = [anchor.href for anchor in components(head) if type(anchor).__name__ == "A"]
    assert links == [
        f"/proxy/8050/download/real/{name}?baseline=synthetic"
        for name in ("report", "trace", "json")
    ]
    assert asked(store, links[0], "/proxy/8050/").status_code == 200


def test_who_does_not_know_the_token_gets_nothing(store: RunStore) -> None:
    app = create_app(store)
    require_token(app.server, TOKEN, 8050)
    client = app.server.test_client()
    assert client.get("/download/real/json").status_code == 401
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get("/download/real/json", headers=bearer, buffered=True).status_code == 200
