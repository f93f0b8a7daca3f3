"""Take the pictures of the docs: the dashboard's pages of the sample runs, and of a nightly job.

python tools/screenshots.py
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from simulator import Job, simulate

from stallscope.dashboard.server import DashboardServer
from stallscope.dashboard.store import RunStore
from stallscope.opening import open_run
from stallscope.run import Run

ROOT = Path(__file__).parents[1]
# Relative, as the page shows the source of a run.
SAMPLES = Path("sample_logs")
RUNS = ("slow-input-one-rank", "synthetic", "clean", "ranks-1", "ranks-4", "busy-rank-0")
FOLDER = Path("docs/dashboard")
WIDTH = 1300
#: Each picture with its page, its height, and whether the page is dark.
PICTURES = {
    FOLDER / "runs.png": ("/", 620, False),
    Path("docs/overview.png"): ("/run/{slow}?baseline={base}", 1030, False),
    FOLDER / "timeline.png": ("/run/{slow}/timeline?baseline={base}&from=150&to=180", 700, False),
    FOLDER / "step.png": ("/run/{slow}/step/300?baseline={base}", 900, False),
    FOLDER / "stragglers.png": ("/run/{slow}/stragglers?baseline={base}", 900, True),
    FOLDER / "baseline.png": ("/run/{slow}/baseline?baseline={base}", 900, False),
    FOLDER / "scaling.png": ("/scaling?runs={one},{two},{four}", 800, False),
    FOLDER / "health.png": ("/run/{slow}/health?baseline={base}", 800, False),
    FOLDER / "compare.png": ("/compare?runs={two},{slow}", 900, False),
}


#: No sample run repeats nightly: this job is simulated.
NIGHTS = {FOLDER / "series.png": ("/compare?runs={nights}", 960, False)}


def main() -> None:
    chromium = shutil.which("chromium-headless-shell")
    if chromium is None:
        sys.exit("Chromium is needed: apt-get install chromium-headless-shell")
    os.chdir(ROOT)
    FOLDER.mkdir(exist_ok=True)
    runs = [open_run(str(SAMPLES / name)) for name in RUNS]
    slow, base, two, one_rank, four, _ = (run.id for run in runs)
    nights = nightly()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        named = {"slow": slow, "base": base, "one": one_rank, "two": two, "four": four}
        take_all(browser, runs, PICTURES, named)
        take_all(browser, nights, NIGHTS, {"nights": ",".join(run.id for run in nights)})
        browser.close()


def nightly() -> list[Run]:
    """Simulate twelve nights of a job; from the ninth on another version of a library makes compute
    slower.
    """
    return [
        simulate(
            Job(
                ranks=4,
                steps=200,
                compute_ms=150.0 if night < 9 else 163.0,
                run_id=f"night-{night:02}",
                run_name=f"resnet50, night {night}",
                seed=night,
                facts={"model": "resnet50", "versions": {"keras": "3.0" if night < 9 else "3.1"}},
            )
        ).run
        for night in range(1, 13)
    ]


def take_all(
    browser: Browser,
    runs: Sequence[Run],
    pictures: Mapping[Path, tuple[str, int, bool]],
    named: Mapping[str, str],
) -> None:
    with served(runs) as url:
        for picture, (page, height, dark) in pictures.items():
            take(browser, url.rstrip("/") + page.format(**named), picture, height, dark)
            print(picture)


@contextmanager
def served(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the address of a dashboard of these runs."""
    server = DashboardServer(RunStore(runs), "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join()


def take(browser: Browser, address: str, picture: Path, height: int, dark: bool) -> None:
    """Take a picture of a page once everything is drawn."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": height}, color_scheme="dark" if dark else "light"
    )
    page.goto(address)
    page.locator("#page h1").wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#page .dash-graph')]"
        ".every(graph => graph.querySelector('.trace, .hm'))"
        " && (!document.querySelector('#runs-grid') || document.querySelector('.run-verdict'))"
        " && [...document.querySelectorAll('.run-verdict')]"
        ".every(verdict => verdict.innerText.trim() !== '…')"
    )
    page.screenshot(path=str(picture))
    page.close()


if __name__ == "__main__":
    main()
