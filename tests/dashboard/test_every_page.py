"""Every page of a run of any size is there, and small enough to be sent at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from dash import Dash
from simulator import Fault, Job, simulate

from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.components.run_tabs import TABS
from stallscope.run import Run

SLOW = Fault("compute", 60, ranks=(0,))
MOST_BYTES = 1_000_000
PATHS = [*TABS.values(), "step/20"]


@cache
def app_of(ranks: int) -> Dash:
    steps = 2000 if ranks >= 1000 else 60
    return create_app(RunStore([simulate(Job(ranks=ranks, steps=steps, faults=(SLOW,))).run]))


def answer(app: Dash, path: str) -> Any:
    """What the browser gets when it goes to an address."""
    asked = {
        "output": "..page.children...loaded-page.data..",
        "outputs": [
            {"id": "page", "property": "children"},
            {"id": "loaded-page", "property": "data"},
        ],
        "inputs": [
            {"id": "address", "property": "pathname", "value": path},
            {"id": "address", "property": "search", "value": ""},
        ],
        "changedPropIds": ["address.pathname"],
    }
    return app.server.test_client().post("/_dash-update-component", json=asked).get_data()


@pytest.mark.parametrize("ranks", [1, 4, 1000])
@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_there_at_every_size(path: str, ranks: int) -> None:
    data = answer(app_of(ranks), f"/run/run-a/{path}".rstrip("/"))
    title = json.loads(data)["response"]["loaded-page"]["data"]["title"]
    assert "simulated" in title or "run-a" in title
    assert "cannot be shown" not in title
    assert len(data) < MOST_BYTES


@pytest.mark.parametrize("path", TABS.values())
def test_every_page_of_a_run_without_steps_says_so(made: Callable[[str], Run], path: str) -> None:
    data = answer(create_app(RunStore([made("no steps")])), f"/run/none/{path}".rstrip("/"))
    title = json.loads(data)["response"]["loaded-page"]["data"]["title"]
    assert "cannot be shown" not in title
    assert "No such" not in title
