"""Requests to callbacks that no page has sent: one line, and no error of Dash."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stallscope.dashboard import RunStore
from stallscope.dashboard.server import DashboardServer
from stallscope.run import Run

PATIENCE_S = 60
LOCATION = {"id": "url", "property": "pathname", "value": "/"}


@contextmanager
def served(run: Run, **settings: str) -> Iterator[DashboardServer]:
    server = DashboardServer(RunStore([run]), "127.0.0.1", 0, **settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def server(made: Callable[[str], Run]) -> Iterator[DashboardServer]:
    with served(made("two ranks")) as server:
        yield server


def answer(server: DashboardServer, body: bytes, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        f"{server.url}_dash-update-component",
        body,
        {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as opened:
            return int(opened.status), opened.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def asked_by_a_page(server: DashboardServer) -> bytes:
    """Return the request of a callback that a page sends, with inputs that the page does not have."""
    with urllib.request.urlopen(f"{server.url}_dash-dependencies", timeout=PATIENCE_S) as opened:
        callback = next(one for one in json.load(opened) if not one["clientside_function"])
    inputs = [{**one, "value": None} for one in callback["inputs"]]
    state = [{**one, "value": None} for one in callback["state"]]
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
    own = server.url.removeprefix("http://").rstrip("/")
    for headers in (
        {},
        {"Origin": f"http://{own}"},
        {"Sec_Fetch_Site": "same-origin", "Origin": "https://hub.example"},
    ):
        assert answer(server, body, **headers)[0] in (200, 204)


def test_behind_a_proxy_pages_have_any_name(made: Callable[[str], Run]) -> None:
    with served(made("two ranks"), prefix="/hub/") as server:
        body = asked_by_a_page(server)
        assert answer(server, body, Origin="http://hub.example")[0] in (200, 204)
        assert answer(server, body, Sec_Fetch_Site="cross-site")[0] == 403
