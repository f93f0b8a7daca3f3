"""What a dashboard holds grows with the run that it shows, not with how often it has shown it."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

from stallscope.analysis import Analysis, analyse
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = pytest.mark.slow

# The clock stands still: a run that has grown is read again whenever its page is asked for.
_PROGRAM = """
import sys
from stallscope.dashboard import RunStore, serve
from stallscope.parsers import read
serve(RunStore(read(sys.argv[1]), clock=lambda: 0.0), port=0)
"""
# More than the server has threads, which take turns.
_STATES = 12
_ROWS_PER_STATE = 100
_MEGA = 1e6


class Recording:
    """A run of some 50,000 rows that grows by a few; at its end there is nothing but steps."""

    def __init__(self, folder: Path, steps: int) -> None:
        whole, self.folder = folder / "whole", folder / "logs"
        self.folder.mkdir()
        job = Job(ranks=2, steps=steps, run_id="growing")
        self._lines = {p.name: p.read_bytes().splitlines(True) for p in write_job(whole, job)}
        self._less = (_STATES + 2) * _ROWS_PER_STATE
        self.grow()

    def grow(self) -> None:
        self._less -= _ROWS_PER_STATE
        for name, lines in self._lines.items():
            (self.folder / name).write_bytes(b"".join(lines[: len(lines) - self._less]))


class Dashboard:
    """A dashboard as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", _PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        match = re.search(r"http://\S+/", self._process.stdout.readline())
        assert match
        self._address = match[0]

    def steps(self) -> int:
        """How many steps the run's page speaks of, as a browser asks for it."""
        outputs = [
            {"id": "page", "property": "children"},
            {"id": "loaded-page", "property": "data"},
        ]
        inputs = [
            {"id": "address", "property": "pathname", "value": "/run/growing"},
            {"id": "address", "property": "search", "value": ""},
        ]
        body = {
            "output": "..page.children...loaded-page.data..",
            "outputs": outputs,
            "inputs": inputs,
            "changedPropIds": ["address.pathname"],
        }
        asked = Request(
            f"{self._address}_dash-update-component",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            match = re.search(r"([\d,]+) steps", answer.read().decode())
        assert match
        return int(match[1].replace(",", ""))

    @property
    def bytes(self) -> int:
        """Memory that is in use."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path, 25_000)


@pytest.fixture
def dashboard(recording: Recording) -> Iterator[Dashboard]:
    dashboard = Dashboard(recording.folder)
    yield dashboard
    dashboard.close()


@pytest.mark.any_versions
@pytest.mark.skipif(sys.platform != "linux", reason="memory in use is read from Linux's /proc")
def test_threads_that_take_turns_do_not_each_keep_what_they_needed(
    recording: Recording, dashboard: Dashboard
) -> None:
    first = dashboard.steps()
    before = dashboard.bytes
    for _ in range(_STATES):
        recording.grow()
        last = dashboard.steps()
    assert last - first >= (_STATES - 1) * _ROWS_PER_STATE
    assert dashboard.bytes - before < 50 * _MEGA


def test_of_a_run_that_has_grown_nothing_holds_an_earlier_state(tmp_path: Path) -> None:
    recording = Recording(tmp_path, 3_000)
    analyses: list[weakref.ref[Analysis]] = []

    def analysed(run: Run, baseline: Run | None, single: Run | None) -> Analysis:
        analysis = analyse(run, baseline, single)
        analyses.append(weakref.ref(analysis))
        return analysis

    store = RunStore(read(str(recording.folder)), analysed, clock=lambda: 0.0)
    for _ in range(4):
        for page in ("", "/timeline", "/stragglers", "/health"):
            view_at(store, f"/run/growing{page}", "")
        recording.grow()
    gc.collect()
    assert [reference() is None for reference in analyses] == [True, True, True, False]
