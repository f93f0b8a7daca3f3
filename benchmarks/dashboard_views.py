"""Time a dashboard's answers for every kind of view, and measure its peak memory.

    python benchmarks/dashboard_views.py STORE RUN OUT TIMES

``dashboard_speed.py`` runs this program. The dashboard's own WSGI application answers, as for a browser.
The first answer of each kind, which may need an analysis, is not timed.

Writes OUT: the milliseconds of TIMES answers by kind of view, and the process's peak memory in MB.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stallscope.analysis.views.lanes import Lanes
from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.store.cache import lanes_of
from stallscope.dashboard.store.run_sources import CollectedRuns

COLUMNS, LANES = 1100, 140
#: Pages of a run by name; each request for a step is for another one.
PAGES = {
    "overview": "",
    "timeline": "/timeline",
    "one step": "/step/{step}",
    "stragglers": "/stragglers",
    "communication": "/communication",
    "baseline": "/baseline",
    "log health": "/health",
}
#: Every shown run has at least so many steps.
FEWEST_STEPS = 200


@dataclass(frozen=True)
class View:
    """Seconds and rows."""

    begin: float
    end: float
    rows: tuple[int, int]


def chosen_views(lanes: Lanes, number: int) -> list[View]:
    """Choose zooms from the whole run to three steps, at random places, on all rows or some."""
    random = np.random.default_rng(1)
    span, rows = lanes.span / 1e9, len(lanes.ranks)
    closest = 3 * span / len(lanes)
    views = []
    for _ in range(number):
        length = float(np.exp(random.uniform(np.log(closest), np.log(span))))
        begin = float(random.uniform(0, span - length))
        some = max(1, int(np.exp(random.uniform(np.log(min(8, rows)), np.log(rows)))))
        height = rows if random.random() < 0.5 else some
        first = int(random.integers(0, rows - height + 1))
        views.append(View(begin, begin + length, (first, first + height)))
    return views


def ask(client: Any, run_id: str, view: View) -> int:
    """Request a view of the timeline, and return the answer's bytes."""
    address = (
        f"/timeline/{run_id}?begin={view.begin}&end={view.end}&rows={view.rows[0]}-{view.rows[1]}"
        f"&lanes={LANES}&columns={COLUMNS}"
    )
    answered = client.get(address)
    assert answered.status_code == 200, answered.get_data(as_text=True)
    return len(answered.get_data())


def page_request(path: str) -> dict[str, Any]:
    """Return the body of Dash's own request for a page."""
    return {
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


def page(client: Any, run_id: str, of_run: str = "/timeline") -> int:
    """Request a run's page through Dash's own callback, and return the answer's bytes."""
    answer = client.post("/_dash-update-component", json=page_request(f"/run/{run_id}{of_run}"))
    assert answer.status_code == 200
    return len(answer.get_data())


def main() -> None:
    store_folder, run_id, out, times = *sys.argv[1:4], int(sys.argv[4])
    store = RunStore(sources=[CollectedRuns(Path(store_folder))])
    client = create_app(store).server.test_client()
    random = np.random.default_rng(2)
    answers_ms = {}
    for name, path in PAGES.items():
        addresses = [path.format(step=random.integers(1, FEWEST_STEPS)) for _ in range(times + 1)]
        answers_ms[name] = times_ms(
            [lambda address=address: page(client, run_id, address) for address in addresses]
        )
    lanes = lanes_of(store.analysis(run_id))
    assert lanes is not None
    views = chosen_views(lanes, 5 * times + 1)
    answers_ms["cells of a timeline"] = times_ms(
        [lambda view=view: ask(client, run_id, view) for view in views]
    )
    Path(out).write_text(json.dumps({"ms": answers_ms, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """Return the peak of this process's resident memory.

    ``getrusage`` would include the parent's memory from before the program was loaded.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * 1024 / 1e6


def times_ms(requests: list[Callable[[], int]]) -> list[float]:
    """Return the milliseconds of all answers but the first."""
    milliseconds = []
    for request in requests:
        begun = time.perf_counter()
        request()
        milliseconds.append((time.perf_counter() - begun) * 1e3)
    return milliseconds[1:]


if __name__ == "__main__":
    main()
