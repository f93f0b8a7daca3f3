"""Time a dashboard from the command in a shell to the list of a folder's runs in a browser.

    python benchmarks/first_page.py [--bare]

Chromium is open before, as a user's browser is, and has never seen a dashboard. Its floor is a bare Dash
app (``--bare``), whose only page is an empty table of the same components. Both alternate in rounds, so
that the machine's other load affects both alike. Bytecode is cached first, as by an installation.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from figures import Figure, at_most, times_as_much
from paired import over_rounds
from peers import PeerError
from playwright.sync_api import Browser, sync_playwright
from simulator import Job, simulate, write_logs

#: From the command to the list of a folder's runs.
LIMIT_S = 1.5
#: In times of the bare app.
MOST = 1.0
#: The times of rounds hardly differ: more of them would not narrow the intervals much.
RUNS, ROUNDS, PATIENCE_S = 100, 4, 120.0
BARE = "a bare Dash app with an empty table"
#: What is awaited on each page: a link to a run, and the text of an empty table.
SHOWN, BARE_SHOWN = "[role=gridcell] a[href^='/run/']", ".ag-overlay-no-rows-center"
#: Notes when an element is in the frame that is drawn next: Playwright itself may look later.
_NOTE = """
const look = () => {
    if (document.querySelector(%s)) {
        window.shownAt = performance.timeOrigin + performance.now();
    } else {
        requestAnimationFrame(look);
    }
};
look();
"""


def figures(quick: bool) -> Iterator[Figure]:
    number, rounds = (10, 2) if quick else (RUNS, ROUNDS)
    with TemporaryDirectory() as folder, opened_browser() as browser:
        runs = Path(folder) / "runs"
        for seed in range(number):
            job = Job(ranks=4, steps=300, seed=seed, run_id=f"run-{seed}")
            write_logs(simulate(job), runs / f"run-{seed}")
        command = [sys.executable, "-m", "stallscope", "dashboard", str(runs), "--port", "0"]
        arms = {SHOWN: command, BARE_SHOWN: [sys.executable, __file__, "--bare"]}
        cache = Path(folder) / "bytecode"
        measured = np.array(
            [
                [seconds_to_page(browser, words, shown, cache) for shown, words in arms.items()]
                # The first round caches bytecode.
                for _ in range(1 + rounds)
            ][1:]
        )
    seconds, bare_s = measured.T
    name = f"dashboard of {number} runs: from the command to its first page in Chromium"
    whole = over_rounds(list(seconds))
    yield at_most(name, whole.value, "s", LIMIT_S, interval=whole.interval)
    yield times_as_much(
        f"{name}, against its floor",
        whole.value,
        "s",
        BARE,
        float(np.median(bare_s)),
        over_rounds(list(seconds / bare_s)),
        MOST,
    )


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Open a browser.

    Raises:
        PeerError: if there is none.
    """
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        raise PeerError("there is no Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def seconds_to_page(browser: Browser, words: Sequence[str], shown: str, cache: Path) -> float:
    """Return the seconds from starting a server until a new visitor sees an element of its page.

    Args:
        browser: the visitor's.
        words: the server's command line; its first line of output has its address.
        shown: the selector of the element.
        cache: the folder of the server's bytecode.
    """
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_S * 1e3)
    page.add_init_script(_NOTE % json.dumps(shown))
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.time()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            url = next(word for word in process.stdout.readline().split() if "://" in word)
            page.goto(url, wait_until="commit")
            shown_at_ms = float(page.wait_for_function("() => window.shownAt").json_value())
            return shown_at_ms / 1e3 - begun
        finally:
            page.context.close()
            # Not SIGINT, which a shell's background jobs ignore.
            process.terminate()


def serve_bare() -> None:
    """Serve the bare app until it is ended."""
    import logging

    import dash_ag_grid
    import dash_mantine_components as dmc
    from dash import Dash
    from waitress.server import create_server

    app = Dash("bare")
    app.layout = dmc.MantineProvider(
        dash_ag_grid.AgGrid(columnDefs=[{"field": "name"}], rowData=[])
    )
    logging.getLogger("waitress").setLevel(logging.ERROR)
    server = create_server(app.server, host="127.0.0.1", port=0)
    print(f"http://127.0.0.1:{server.effective_port}/", flush=True)
    server.run()


def main() -> None:
    if sys.argv[1:] == ["--bare"]:
        serve_bare()
        return
    for figure in figures(quick=False):
        print(figure)


if __name__ == "__main__":
    main()
