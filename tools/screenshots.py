"""Takes the pictures of the docs: the dashboard's overview of a sample run.

python tools/screenshots.py
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from stallscope.dashboard.server import DashboardServer
from stallscope.dashboard.store import RunStore
from stallscope.runs import open_run

ROOT = Path(__file__).parents[1]
# Relative, as the page shows where a run is from.
SAMPLES = Path("sample_logs")
WINDOW = {"width": 1300, "height": 1030}


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is needed: apt-get install chromium")
    os.chdir(ROOT)
    run = open_run(str(SAMPLES / "slow-input-one-rank"))
    baseline = open_run(str(SAMPLES / "synthetic"))
    server = DashboardServer(RunStore([run, baseline]), "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW)
        page.goto(f"{server.url.rstrip('/')}/run/{run.id}?baseline={baseline.id}")
        page.wait_for_selector(".js-plotly-plot .barlayer .point")
        page.wait_for_load_state("networkidle")
        page.screenshot(path="docs/overview.png")
        browser.close()
    server.stop()
    thread.join()


if __name__ == "__main__":
    main()
