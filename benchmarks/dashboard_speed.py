"""Time the timeline's answers on a large run, against computing each view from all steps.

    python benchmarks/dashboard_speed.py [--ranks 1000] [--steps 10000] [--views 200]

The run is simulated, on hosts of 8 ranks that each have their own clock. The dashboard's own WSGI
application answers the requests for views, as for a browser: from the whole run to a few steps, on
all ranks or a few. The alternative reads every step of every rank in a view and sums them into the
same cells. Sending the steps themselves would need the bytes of the table's last line.

Another process, ``dashboard_views.py``, times the answers for every kind of view of a collected run, and
measures the dashboard's peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
from dashboard_views import COLUMNS, LANES, View, ask, chosen_views, page
from figures import Figure, at_most, share_of
from large_run import collected as collected_run
from peers import ROOT, output_of
from simulator import Clocks, Fault, Job, Noise, simulate

from stallscope.analysis.views.lanes import Lanes
from stallscope.catalogue.collecting import list_runs
from stallscope.collector.store.layout import ANALYSIS
from stallscope.collector.store.run_folders import save_run
from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.store.cache import lanes_of
from stallscope.dashboard.store.run_sources import CollectedRuns
from stallscope.dashboard.timeline.answer import answer
from stallscope.run import Run

T = TypeVar("T")

PROGRAM = ROOT / "benchmarks" / "dashboard_views.py"
LARGEST_MB, SLOWEST_MS, FIRST_VIEW_S = 1.0, 150.0, 2.0
#: For a run that is open: 95 % of the answers of each kind of view, and the process's memory.
ANSWER_MS, PEAK_MB = 50.0, 1000.0


def figures(quick: bool) -> Iterator[Figure]:
    yield from timeline_figures(quick)
    yield from all_views_figures(*((100, 200, 5) if quick else (1000, 10_000, 20)))


def all_views_figures(ranks: int, steps: int, times: int) -> Iterator[Figure]:
    """Yield the figures of a dashboard that shows one collected run, in another process."""
    with TemporaryDirectory() as folder:
        store, out = Path(folder) / "store", Path(folder) / "out.json"
        run = collected_run(ranks, steps, store)
        output_of([sys.executable, str(PROGRAM), str(store), run.name, str(out), str(times)])
        measured = json.loads(out.read_text())
    what = f"dashboard, {ranks:,} ranks × {steps:,} steps"
    for kind, own_ms in measured["ms"].items():
        name = f"{what}: 95 % of answers, {kind}"
        yield at_most(name, float(np.percentile(own_ms, 95)), "ms", ANSWER_MS)
    yield at_most(f"{what}: peak memory", measured["peak_mb"], "MB", PEAK_MB)


def timeline_figures(quick: bool) -> list[Figure]:
    run = simulated(100 if quick else 1000, 200 if quick else 1000)
    store = RunStore([run])
    run_id = store.runs()[0].id
    client = create_app(store).server.test_client()
    lanes = lanes_of(store.analysis(run_id))
    assert lanes is not None
    ask(client, run_id, View(0, 1e9, (0, len(lanes.ranks))))
    views = chosen_views(lanes, 20 if quick else 100)
    answers = [timed(lambda view=view: ask(client, run_id, view)) for view in views]
    others = [timed(lambda view=view: from_all_steps(lanes, view)) for view in views]
    own_ms, other_ms = (
        float(np.percentile([answer[1] for answer in all_of], 95)) * 1e3
        for all_of in (answers, others)
    )
    name = f"timeline of {run.steps.num_rows:,} rows: 95 % of views"
    first_s, _ = collected(run)
    return [
        at_most(f"{name} within", own_ms, "ms", SLOWEST_MS),
        share_of(f"{name}, against all steps", own_ms, "ms", "adding up all steps", other_ms),
        at_most(
            "timeline: largest answer", max(answer[0] for answer in answers) / 1e6, "MB", LARGEST_MB
        ),
        at_most("first view of a collected run", first_s, "s", FIRST_VIEW_S),
    ]


def simulated(ranks: int, steps: int) -> Run:
    job = Job(
        ranks=ranks,
        steps=steps,
        epochs=10,
        validation_ms=5000,
        noise=Noise(cv=0.05),
        clocks=Clocks(offset_s=1000, drift_ppm=20),
        faults=(Fault("compute", 30, ranks=(min(3, ranks - 1),)),),
    )
    return simulate(job).run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--views", type=int, default=200)
    options = parser.parse_args()
    run = simulated(options.ranks, options.steps)
    store = RunStore([run])
    run_id = store.runs()[0].id
    client = create_app(store).server.test_client()
    analysis, analysed_s, _ = timed(lambda: store.analysis(run_id))
    before = memory()
    first = View(0, 1e9, (0, options.ranks))
    _, first_s, first_worked_s = timed(lambda: ask(client, run_id, first))
    _, page_s, _ = timed(lambda: page(client, run_id))
    lanes = lanes_of(analysis)
    assert lanes is not None
    views = chosen_views(lanes, options.views)
    answers = [timed(lambda view=view: ask(client, run_id, view)) for view in views]
    alternative = [timed(lambda view=view: from_all_steps(lanes, view)) for view in views]
    print(f"{options.ranks:,} ranks × {options.steps:,} steps, {len(views)} views\n")
    print("| figure | timeline | from all steps |\n| --- | ---: | ---: |")
    for title, index in (("answer", 1), ("answer's CPU time", 2)):
        own_ms = [answer[index] * 1e3 for answer in answers]
        other_ms = [answer[index] * 1e3 for answer in alternative]
        for name, at in (("median", 50), ("95th percentile", 95), ("slowest", 100)):
            timeline_ms, all_steps_ms = np.percentile(own_ms, at), np.percentile(other_ms, at)
            print(f"| {title}, {name}, ms | {timeline_ms:.1f} | {all_steps_ms:.1f} |")
    whole = max(size for size, *_ in answers) / 1e6
    raw = max(size for size, *_ in alternative) / 1e6
    print(f"| largest answer, MB | {whole:.2f} | {raw:.1f} |")
    print(f"\nfirst view, with the sums that it is made of, {first_s * 1e3:.0f} ms")
    print(f"({first_worked_s * 1e3:.0f} ms of CPU); page {page_s * 1e3:.0f} ms")
    print(f"analysis {analysed_s:.1f} s; {lanes.nbytes / 1e6:.0f} MB are kept for the timeline")
    print(f"memory {before:.2f} GiB before the first view, {memory():.2f} GiB after the last,")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak {peak:.2f} GiB, simulation and analysis included")
    p95 = float(np.percentile([answer[1] for answer in answers], 95)) * 1e3
    remembered_s, anew_s = collected(run)
    print(f"collected: first view {remembered_s:.2f} s; analysed on request, {anew_s:.2f} s")
    held = p95 < SLOWEST_MS and whole < LARGEST_MB and remembered_s < FIRST_VIEW_S
    print(
        f"targets (95 % under {SLOWEST_MS:.0f} ms, answers under {LARGEST_MB:g} MB, first view of a "
        f"collected run under {FIRST_VIEW_S:g} s): {held}"
    )


def collected(run: Run) -> tuple[float, float]:
    """Measure the seconds until a collected run's overview is shown: with a cached analysis, and
    without.
    """
    with TemporaryDirectory() as folder:
        place = save_run(run, Path(folder))
        list_runs([(run, place)], Path(folder))
        seconds = []
        for _ in range(2):
            client = create_app(
                RunStore(sources=[CollectedRuns(Path(folder))])
            ).server.test_client()
            seconds.append(timed(lambda client=client: page(client, place.name, "")))
            (place / ANALYSIS).unlink(missing_ok=True)  # the analysis of a small run is not cached
        return seconds[0][1], seconds[1][1]


def from_all_steps(lanes: Lanes, view: View) -> int:
    """Compute the same cells without the cached sums; also return the bytes of the steps as float32."""
    bare, (part,) = copy(lanes), map(copy, lanes._parts)
    sums = copy(part.sums)
    sums._of_ranks, sums._of_groups, sums._groups = sums._of_ranks[:1], [], np.zeros(0, np.int64)
    part.sums, bare._parts = sums, [part]
    begin, end = int(view.begin * 1e9), int(view.end * 1e9)
    cells = min(int(COLUMNS / 1.5), 64_000 // LANES)
    answer(bare, begin, end, COLUMNS, bare.view(begin, end, view.rows, LANES, cells))
    steps = lanes.at(end) - lanes.at(begin) + 1
    return steps * (view.rows[1] - view.rows[0]) * 4 * 4


def memory() -> float:
    """Return this process's current memory in GiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**30


def timed(action: Callable[[], T]) -> tuple[T, float, float]:
    """Return the result, the seconds on the clock, and the CPU seconds."""
    begun, worked = time.perf_counter(), time.process_time()
    result = action()
    return result, time.perf_counter() - begun, time.process_time() - worked


if __name__ == "__main__":
    main()
