"""Tokens, and dashboards below a path of another server."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from dash import Dash

from stallscope.cli.dashboard import _token
from stallscope.dashboard import RunStore
from stallscope.dashboard.addresses import checked_prefix
from stallscope.dashboard.app import create_app
from stallscope.dashboard.components.notices import TABS
from stallscope.dashboard.security import checked_token, new_token, require_token
from stallscope.errors import UsageError

TOKEN = "a-token-of-ours_1234"
PORT = 8050


@pytest.fixture(scope="module")
def guarded(store: RunStore) -> Dash:
    app = create_app(store)
    require_token(app.server, TOKEN, PORT)
    return app


@pytest.fixture(scope="module")
def below(store: RunStore) -> Dash:
    return create_app(store, "/user/ada/proxy/")


@pytest.mark.parametrize(
    "path", ["/", "/run/real", "/_dash-layout", "/assets/stallscope.css", "/?token=", "/?token=a"]
)
def test_without_the_token_nothing_is_shown(guarded: Dash, path: str) -> None:
    answer = guarded.server.test_client().get(path)
    assert answer.status_code == 401
    assert "open the address that the terminal shows" in answer.get_data(as_text=True)
    assert "Set-Cookie" not in answer.headers
    assert answer.headers["Content-Security-Policy"]


def test_nearly_the_token_is_not_the_token(guarded: Dash) -> None:
    client = guarded.server.test_client()
    for given in (TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ä", "\xff"):
        assert client.get("/", query_string={"token": given}).status_code == 401
        headers = {"Authorization": f"Bearer {given}"}
        assert client.get("/", headers=headers).status_code == 401
    assert client.post(f"/_dash-update-component?token={TOKEN}", json={}).status_code == 401


def test_the_address_lets_in_once_and_the_cookie_from_then_on(guarded: Dash) -> None:
    client = guarded.server.test_client()
    answer = client.get(f"/run/real?baseline=synthetic&token={TOKEN}&from=3")
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/run/real?baseline=synthetic&from=3"
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"stallscope-{PORT}=")
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert client.get("/_dash-layout").status_code == 200
    client.set_cookie(f"stallscope-{PORT}", "0" * 64)
    assert client.get("/_dash-layout").status_code == 401


def test_the_way_on_leads_to_no_other_host(guarded: Dash) -> None:
    client = guarded.server.test_client()
    answer = client.get(f"//evil.example/path?token={TOKEN}")
    assert answer.headers.get("Location", "/").startswith("/")
    assert not answer.headers.get("Location", "/").startswith("//")


def test_scripts_send_it_as_a_bearer(guarded: Dash) -> None:
    client = guarded.server.test_client()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get("/_dash-layout", headers=headers).status_code == 200
    assert client.get("/_dash-layout").status_code == 401


def test_tokens_are_long_and_fit_into_addresses() -> None:
    assert checked_token(new_token()) != new_token()
    for poor in ("", "short", "with space in it, long", "a" * 201, "https://example.com/a"):
        with pytest.raises(UsageError, match="16 to 200 letters"):
            checked_token(poor)


@pytest.mark.parametrize("stripped", [False, True])
def test_below_a_path_every_address_stands_below_it(below: Dash, stripped: bool) -> None:
    client = below.server.test_client()
    at = "/" if stripped else "/user/ada/proxy/"
    index = client.get(f"{at}run/real").get_data(as_text=True)
    loaded = re.findall(r'(?:src|href)="(/[^"]*)"', index)
    assert len(loaded) > 5
    assert all(address.startswith("/user/ada/proxy/") for address in loaded)
    for address in loaded:
        asked = address.removeprefix("/user/ada/proxy") if stripped else address
        with client.get(asked) as answer:
            assert answer.status_code == 200, asked
    links = _hrefs(client.get(f"{at}_dash-layout").get_json())
    home = "/user/ada/proxy/"
    assert links == ["#content", home, home, f"{home}scaling"]


@pytest.mark.parametrize("stripped", [False, True])
def test_below_a_path_pages_are_found_and_link_to_each_other(below: Dash, stripped: bool) -> None:
    answer = _page(below, "run/real", "?baseline=synthetic", stripped)
    assert answer["loaded-page"]["data"]["title"] == "resnet on pictures"
    links = [href for href in _hrefs(answer["page"]["children"]) if "/run/" in href]
    assert "/user/ada/proxy/run/real?baseline=synthetic" in links


@pytest.mark.parametrize(
    "path", ["", "scaling", "compare?runs=real,slow", "run/nobody", *TABS.values()]
)
def test_below_a_path_no_link_leads_elsewhere(below: Dash, path: str) -> None:
    if path in TABS.values():
        path = f"run/slow/{path}".rstrip("/")
    page, _, query = path.partition("?")
    answer = _page(below, page, f"?{query}" if query else "", stripped=True)
    links = _hrefs(answer["page"]["children"])
    assert all(href.startswith(("/user/ada/proxy/", "#", "?")) for href in links), links


def _page(app: Dash, path: str, search: str, stripped: bool) -> Any:
    asked = {
        "output": "..page.children...loaded-page.data..",
        "outputs": [
            {"id": "page", "property": "children"},
            {"id": "loaded-page", "property": "data"},
        ],
        "inputs": [
            {"id": "address", "property": "pathname", "value": f"/user/ada/proxy/{path}"},
            {"id": "address", "property": "search", "value": search},
        ],
        "changedPropIds": ["address.pathname"],
    }
    at = "/" if stripped else "/user/ada/proxy/"
    answer = app.server.test_client().post(f"{at}_dash-update-component", json=asked)
    return answer.get_json()["response"]


@pytest.mark.parametrize(
    ("given", "whole"),
    [("/", "/"), ("", "/"), ("stallscope", "/stallscope/"), ("/user/a@b.c/proxy/8050", None)],
)
def test_a_path_has_a_slash_at_both_ends(given: str, whole: str | None) -> None:
    assert checked_prefix(given) == (whole or f"{given}/")


@pytest.mark.parametrize("given", ["/a/../b", '/"><script>', "/a b/", "//evil.example", "/a?b/"])
def test_what_is_no_path_is_refused(given: str) -> None:
    if given == "//evil.example":
        assert checked_prefix(given) == "/evil.example/"
        return
    with pytest.raises(UsageError, match="is not a path: write it like --prefix /stallscope/"):
        checked_prefix(given)


def _hrefs(tree: Any) -> list[str]:
    """All links of a layout, from the top down."""
    text = json.dumps(tree)
    return re.findall(r'"href": "([^"]*)"', text)


def test_the_command_takes_a_token_from_the_environment_or_makes_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STALLSCOPE_TOKEN", TOKEN)
    assert _token("") == TOKEN
    assert _token("another-token-of-ours") == "another-token-of-ours"
    assert _token(None) is None
    monkeypatch.delenv("STALLSCOPE_TOKEN")
    token = _token("")
    assert token is not None
    assert checked_token(token) != _token("")
