"""Requests to callbacks that no page has sent: one line, and no error of Dash."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.waiting import PATIENCE_SECONDS

from stallscope.dashboard import RunStore
from stallscope.dashboard.server import DashboardServer
from stallscope.run import Run

LOCATION = {"id": "url", "property": "pathname", "value": "/"}


@contextmanager
def served(run: Run, **settings: str) -> Iterator[DashboardServer]:
    server = DashboardServer(RunStore([run]), "127.0.0.1", 0, **settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def server(named_run: Callable[[str], Run]) -> Iterator[DashboardServer]:
    with served(named_run("two ranks")) as server:
        yield server


def answer(server: DashboardServer, body: bytes, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        f"{server.url}_dash-update-component",
        body,
        {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as opened:
            return int(opened.status), opened.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def asked_by_a_page(server: DashboardServer) -> bytes:
    """Return the request of a callback that a page sends, with inputs that the page does not have."""
    with urllib.request.urlopen(
        f"{server.url}_dash-dependencies", timeout=PATIENCE_SECONDS
    ) as opened:
        callback = next(entry for entry in json.load(opened) if not entry["clientside_function"])
    inputs = [{**field, "value": None} for field in callback["inputs"]]
    state = [{**field, "value": None} for field in callback["state"]]
    names = callback["output"].strip(".").split("...")
    outputs = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)) for name in names]
    body = {"output": callback["output"], "inputs": inputs, "state": state, "changedPropIds": []}
    body["outputs"] = outputs if callback["output"].startswith("..") else outputs[0]
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "its body is no JSON object"),
        (b"{", "its body is no JSON object"),
        (b"[]", "its body is no JSON object"),
        (b"{}", "it names no callback"),
        (b'{"output": ["a"]}', "it names no callback"),
        (b'{"output": "../../etc/passwd.children"}', "it names no callback"),
        (b"[" * 100_000, "its body is nested too deeply"),
        (b'{"a":' * 100_000, "its body is nested too deeply"),
    ],
)
def test_malformed_requests_are_400_and_one_line_of_the_log(
    server: DashboardServer, caplog: pytest.LogCaptureFixture, body: bytes, reason: str
) -> None:
    assert answer(server, body) == (400, f"{reason}\n")
    assert caplog.messages == [f"a request to /_dash-update-component is refused: {reason}"]


@pytest.mark.parametrize("outputs", [None, [], {}, [{"id": "a", "property": "b"}] * 9, "x"])
def test_outputs_are_those_of_the_callback(server: DashboardServer, outputs: object) -> None:
    asked = json.loads(asked_by_a_page(server)) | {"outputs": outputs}
    status, text = answer(server, json.dumps(asked).encode())
    assert (status, text) == (400, "its outputs are not those of the callback\n")


@pytest.mark.parametrize("values", ['"x"', "[1]", '[{"id": "url"}]'])
def test_inputs_have_the_form_of_properties(server: DashboardServer, values: str) -> None:
    asked = json.loads(asked_by_a_page(server))
    asked["inputs"] = json.loads(values)
    status, text = answer(server, json.dumps(asked).encode())
    assert (status, text) == (400, "its inputs are no properties of components\n")


def callbacks(server: DashboardServer) -> Iterator[dict[str, Any]]:
    """Yield a request to each callback that the server answers."""
    with urllib.request.urlopen(
        f"{server.url}_dash-dependencies", timeout=PATIENCE_SECONDS
    ) as opened:
        known = json.load(opened)
    for callback in known:
        if callback["clientside_function"]:
            continue
        names = callback["output"].strip(".").split("...")
        outputs = [
            with_id(dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)))
            for name in names
        ]
        yield {
            "output": callback["output"],
            "outputs": outputs if callback["output"].startswith("..") else outputs[0],
            **{name: [*map(with_id, callback[name])] for name in ("inputs", "state")},
            "changedPropIds": [],
        }


def with_id(declared: dict[str, Any]) -> dict[str, Any]:
    """Return a property of a component that a callback declares, if it does by a pattern."""
    if not declared["id"].startswith("{"):
        return {**declared}
    pattern = json.loads(declared["id"])
    named = {key: "x" if isinstance(part, list) else part for key, part in pattern.items()}
    return {**declared, "id": named, **({"value": named} if declared["property"] == "id" else {})}


def test_each_callback_answers_a_page_that_knows_nothing_yet(server: DashboardServer) -> None:
    for body in callbacks(server):
        assert answer(server, json.dumps(body).encode())[0] in (200, 204), body["output"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1]},
        {"run": [], "number": {}},
        {"type": "run-line"},
        {"startRow": 10**40, "sortModel": [{"colId": [], "sort": {}}]},
        [[]],
        [{}],
        [{"rowId": []}],
        [{"id": 1}],
        [{"id": "a", "startedAt": []}, {"id": "b"}],
        [None],
        [7],
        7.5,
        True,
        "x" * 99,
        "\0",
    ],
)
def test_values_of_another_kind_are_refused_or_answered(
    server: DashboardServer, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    asked = [*callbacks(server)]
    assert len(asked) > 3
    for body in asked:
        for entry in (*body["inputs"], *body["state"]):
            entry["value"] = value
        status, text = answer(server, json.dumps(body).encode())
        assert status in (200, 204, 400)
        assert status != 400 or text.count("\n") == 1
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("changed", [[{}], [[]], [None], [7], "x", {}, 7])
def test_changed_properties_are_names(
    server: DashboardServer, caplog: pytest.LogCaptureFixture, changed: object
) -> None:
    for body in callbacks(server):
        asked = json.dumps(body | {"changedPropIds": changed}).encode()
        assert answer(server, asked) == (400, "its changedPropIds are no list of names\n")
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("component", [{}, [], {"a": []}, {"type": "x", "run": "x"}, 7, "x"])
def test_other_components_are_refused(
    server: DashboardServer, caplog: pytest.LogCaptureFixture, component: object
) -> None:
    for body in callbacks(server):
        body["inputs"][0]["id"] = component
        status, text = answer(server, json.dumps(body).encode())
        assert (status, text.count("\n")) == (400, 1)
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("change", [lambda values: values[:-1], lambda values: values * 2])
def test_other_numbers_of_inputs_are_refused(
    server: DashboardServer, change: Callable[[list[Any]], list[Any]]
) -> None:
    for body in callbacks(server):
        body["inputs"] = change(body["inputs"])
        status, text = answer(server, json.dumps(body).encode())
        assert (status, text) == (400, "its inputs are not those of the callback\n")


@pytest.mark.parametrize("path", ["os/x.js", "dash/x.js", "dash/..%2f..%2fx.js", "nosuch/x.js"])
def test_unknown_scripts_are_404_in_one_line(
    server: DashboardServer, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(
            f"{server.url}_dash-component-suites/{path}", timeout=PATIENCE_SECONDS
        )
    assert error.value.code == 404
    assert error.value.read() == b"there is no such script\n"
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_sites_are_refused(server: DashboardServer, headers: dict[str, str]) -> None:
    status, text = answer(server, asked_by_a_page(server), **headers)
    assert (status, text) == (403, "it comes from another site\n")


def test_pages_are_answered(server: DashboardServer) -> None:
    body = asked_by_a_page(server)
    host = server.url.removeprefix("http://").rstrip("/")
    for headers in (
        {},
        {"Origin": f"http://{host}"},
        {"Sec_Fetch_Site": "same-origin", "Origin": "https://hub.example"},
    ):
        assert answer(server, body, **headers)[0] in (200, 204)


def test_behind_a_proxy_pages_have_any_name(named_run: Callable[[str], Run]) -> None:
    with served(named_run("two ranks"), prefix="/hub/") as server:
        body = asked_by_a_page(server)
        assert answer(server, body, Origin="http://hub.example")[0] in (200, 204)
        assert answer(server, body, Sec_Fetch_Site="cross-site")[0] == 403
