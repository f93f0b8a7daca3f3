"""Real DDP ranks under torch.profiler and the recorder at once: both show the same."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.traces import Times
from training.launching import ENVIRONMENT, launch_words

from stallscope.analysis import analyse
from stallscope.parsers import read
from stallscope.run import Run

pytestmark = pytest.mark.horovod

RANKS, STEPS = 2, 40
CASES = (
    "clean",
    "input-one-rank",
    "input-all-ranks",
    "input-of-workers",
    "late-rank",
    "long-allreduce",
    "buffers",
    "accumulation",
)


@pytest.fixture(scope="module")
def trained(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train all cases in one launch."""
    out = tmp_path_factory.mktemp("profiled")
    words = [str(ENVIRONMENT / "bin" / "torchrun"), "--standalone", "--nproc-per-node", str(RANKS)]
    launched = launch_words(out / "printed.txt", words, "profiled_torch.py", str(out), *CASES)
    launched.succeed()
    return out


def run_in(folder: Path) -> Run:
    (run,) = read(str(folder))
    assert run.ranks == list(range(RANKS))
    return run


def rows_of(run: Run, rank: int, steps: set[int]) -> pd.DataFrame:
    rows = run.steps.to_pandas().sort_values("step")
    return rows[(rows["rank"] == rank) & rows["step"].isin(steps)]


@pytest.mark.parametrize("case", CASES)
def test_traces_and_step_logs_of_the_same_steps_agree(trained: Path, case: str) -> None:
    logs, traces = (run_in(trained / case / name) for name in ("logs", "traces"))
    # The trace does not show where the step before its first one ended.
    steps = set(sorted(set(traces.steps["step"].to_pylist()))[1:])
    for rank in range(RANKS):
        log, trace = (rows_of(run, rank, steps) for run in (logs, traces))
        assert len(log) == len(trace) == STEPS - 1
        assert trace["data"].notna().all()
        assert trace["reduced"].notna().all()
        took = [rows["reduced"].iloc[-1] - rows["reduced"].iloc[0] for rows in (log, trace)]
        # Both take times in different threads, and each may wait for a core.
        assert took[1] == pytest.approx(took[0], rel=0.05)
        of_a_step = took[0] / (STEPS - 2)
        waits = [(rows["data"] - rows["begin"]).mean() for rows in (log, trace)]
        assert waits[1] == pytest.approx(waits[0], rel=0.02, abs=0.02 * of_a_step)


@pytest.mark.parametrize("case", ["input-one-rank", "input-all-ranks", "accumulation"])
def test_the_ledgers_of_both_show_the_same_input(trained: Path, case: str) -> None:
    logs, traces = (analyse(run_in(trained / case / name)) for name in ("logs", "traces"))
    step_ms = sum(entry.ms for entry in logs.by_cause)
    log, trace = (
        {entry.name: entry.ms for entry in analysis.by_cause} for analysis in (logs, traces)
    )
    assert log["input"] > 0.1 * step_ms
    # The recorder has a few more steps.
    assert trace["input"] == pytest.approx(log["input"], abs=0.1 * step_ms)


@pytest.mark.parametrize("case", CASES)
def test_steps_have_as_much_input_and_exposed_communication_as_their_spans(
    trained: Path, case: str
) -> None:
    traces = run_in(trained / case / "traces")
    for rank in range(RANKS):
        path = trained / case / "traces" / f"rank{rank}.pt.trace.json"
        events = [
            event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"
        ]
        rows = rows_of(traces, rank, set(traces.steps["step"].to_pylist()))
        input_ns = (rows["data"] - rows["begin"]).sum()
        assert input_ns == pytest.approx(
            total(of(events, "enumerate(DataLoader)#")) * 1e3, rel=0.02
        )
        exposed_ns = (rows["reduced"] - rows["ready"]).sum()
        least, most = (exposed_us(events, waits_within=waits) * 1e3 for waits in (False, True))
        assert 0.98 * least <= exposed_ns <= 1.02 * most


def of(events: list[dict[str, Any]], start: str) -> list[Times]:
    """Return start and length of the events with a name that starts so, microseconds."""
    return sorted(
        (event["ts"], event["dur"]) for event in events if event["name"].startswith(start)
    )


def total(times: list[Times]) -> float:
    return sum(takes for _, takes in times)


def exposed_us(events: list[dict[str, Any]], *, waits_within: bool) -> float:
    """Return the time in which Gloo's collectives ran and the training thread did nothing.

    Gloo's thread may note the end of a collective late: it has ended before the next update.

    Args:
        waits_within: whether operators that start a collective only wait for it.
    """
    (thread,) = {event["tid"] for event in events if event["name"].startswith("ProfilerStep#")}
    updates = [begin for begin, _ in of(events, "Optimizer.step#")]
    starts = [begin for begin, _ in of(events, "c10d::")]
    edges = []
    for event in events:
        begin, end = event["ts"], event["ts"] + event["dur"]
        waits = waits_within and any(begin < at < end for at in starts)
        if event["tid"] == thread and event["cat"] == "cpu_op" and not waits:
            edges.append((begin, end, 0))
    for begin, takes in of(events, "gloo:"):
        update = min((at for at in updates if at > begin), default=begin + takes)
        edges.append((begin, min(begin + takes, update), 1))
    changes = sorted(
        (at, kind, by) for low, high, kind in edges for at, by in ((low, 1), (high, -1))
    )
    open_spans, exposed = [0, 0], 0.0
    for (at, kind, by), (following, _, _) in pairwise(changes):
        open_spans[kind] += by
        if open_spans[1] and not open_spans[0]:
            exposed += following - at
    return exposed
