"""Compare recorded timestamps with the training's CUDA events and with torch.profiler's trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import stallscope as ss
from stallscope.run import Run

from .cases import PROFILED
from .launching import Check, recorded, run_of, truth_of

#: The device's clock is known up to the time that an idle device takes to answer. A device that waits
#: reaches our timestamp when the host enqueues it, and the training's event a little later.
TOLERANCE_US, WAITING_TOLERANCE_US = 50.0, 200.0
#: torch.profiler itself converts the device's times to the host's clock.
PROFILER_TOLERANCE_US = 150.0
#: Largest difference of step times in the profiler's trace and in our log, as a share.
STEP_TOLERANCE = 0.05
_SKIPPED = 10
#: The share of steps that must be within the tolerance. Ranks that share a GPU take turns on it, and a
#: turn may end between our timestamp and the training's event.
_SHARE, RANKS_SHARE = 0.99, 0.9


def against_events(
    out: Path,
    title: str,
    names: tuple[str, ...] = ("data", "ready", "end"),
    tolerance_us: float = TOLERANCE_US,
    share: float = _SHARE,
) -> list[Check]:
    """Compare the timestamps of rank 0 with the training's own events."""
    truth = truth_of(out)["steps"]
    events = {name: np.array([step[name] for step in truth], np.float64) for name in names}
    return [
        _compared(
            out, f"{title}: {name}", name, events[name], tolerance_us=tolerance_us, share=share
        )
        for name in names
    ]


def without_broadcasts(out: Path, rank: int) -> Check:
    """Compare *ready* of a rank that waits for broadcasts: they are no part of its compute."""
    truth = truth_of(out, rank)["steps"]
    waits = np.array([step["broadcast_end"] - step["broadcast"] for step in truth], np.float64)
    ready = np.array([step["ready"] for step in truth], np.float64) - waits
    title = f"ready without {np.median(waits) / 1e6:.1f} ms in broadcasts"
    return _compared(out, title, "ready", ready, rank=rank, share=RANKS_SHARE)


def _compared(
    out: Path,
    title: str,
    column: str,
    truth: np.ndarray[tuple[int], np.dtype[np.float64]],
    *,
    rank: int = 0,
    tolerance_us: float = TOLERANCE_US,
    share: float,
) -> Check:
    """Compare a column with the training's own times, by step in monotonic nanoseconds."""
    run, error_ns = run_of(out), truth_of(out, rank)["error_ns"]
    limit = tolerance_us + error_ns / 1e3 + (_stamps(run).get("clock_error_us") or 0.0)
    difference = np.abs(recorded(run, column, rank) - truth)[_SKIPPED:] / 1e3
    known = difference[np.isfinite(difference)]
    if len(known) < len(difference) or not len(known):
        seen = f"{len(difference) - len(known)} of {len(difference)} are missing"
        return Check(title, "recorded", seen, False)
    median, most = np.median(known), np.quantile(known, share)
    seen = f"median {median:.1f} µs, {share:.0%} within {most:.1f} µs"
    return Check(title, f"{share:.0%} within {limit:.0f} µs", seen, bool(most <= limit))


def clock(out: Path, device: str) -> Check:
    """Check that timestamps are the device's, and how well its clock is known."""
    stamps = _stamps(run_of(out))
    expected = "the device's own, no step without" if device == "cuda" else "the host's"
    good = stamps.get("clock") == ("cuda" if device == "cuda" else None)
    good = good and not stamps.get("turns_without_times") and not stamps.get("reason")
    return Check("clock of the timestamps", expected, json.dumps(stamps), good)


def against_profiler(out: Path) -> list[Check]:
    """Compare the end of backward on the device, and the steps of the trace as Stallscope reads it."""
    run = run_of(out)
    trace = json.loads((out / "traces" / "rank0.pt.trace.json").read_text())
    ends = _ends_of_backward(trace)
    checks = [trace_steps(out)]
    if not len(ends):
        return [
            *checks,
            Check("profiler: end of backward", "in the trace", "the trace has none", None),
        ]
    anchor = run.logs[0].facts["anchor"]
    ends += anchor["monotonic_ns"] - anchor["wall_ns"]
    ready = recorded(run, "ready")
    apart = [float(np.nanmin(np.abs(ready - end))) / 1e3 for end in ends]
    seen = f"median {np.median(apart):.1f} µs, at most {max(apart):.1f} µs, {len(apart)} steps"
    good = max(apart) <= PROFILER_TOLERANCE_US
    expected = f"ready within {PROFILER_TOLERANCE_US:.0f} µs"
    return [*checks, Check("profiler: end of backward", expected, seen, good)]


def traced_ranks(out: Path) -> list[Check]:
    """Check the traces of several ranks, read as a run: steps, and communication that is exposed."""
    traced = ss.open_run(str(out / "traces"))
    exposed = float(ss.analyse(traced).ledger["ms"].get("allreduce", 0.0))
    recorded_ms = float(ss.analyse(run_of(out)).ledger["ms"].get("allreduce", 0.0))
    expected = f"{PROFILED['active']} steps of each rank"
    steps = {rank: int(count) for rank, count in traced.steps.groupby("rank").size().items()}
    every = all(PROFILED["active"] - 1 <= count for count in steps.values())
    return [
        Check("profiler, two ranks: traced", expected, f"steps by rank: {steps}", every),
        trace_steps(out),
        Check(
            "profiler, two ranks: exposed allreduce",
            "more than 0",
            f"{exposed:.2f} ms in the traces, {recorded_ms:.2f} ms recorded over all steps",
            exposed > 0,
        ),
    ]


def _ends_of_backward(trace: dict[str, Any]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return when the last kernel before each optimizer's step ended, in nanoseconds of the wall clock.

    The kernels of backward are launched by another thread, and are in no span of the device.
    """
    zero = int(trace.get("baseTimeNanoseconds", 0))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    updates = [
        event["ts"]
        for event in events
        if event["cat"] == "gpu_user_annotation" and "Optimizer.step" in event["name"]
    ]
    kernels = np.array([event["ts"] + event["dur"] for event in events if event["cat"] == "kernel"])
    last = [kernels[kernels <= update].max() for update in updates if (kernels <= update).any()]
    return np.array([round(end * 1e3) + zero for end in last], np.int64)


def trace_steps(out: Path) -> Check:
    """Compare the step time of a training's traces with the recorded one of the same steps."""
    name, expected = (
        "profiler: its trace as a run",
        f"step time within {STEP_TOLERANCE:.0%} of the log's",
    )
    traced = ss.open_run(str(out / "traces"))
    analysis = ss.analyse(traced)
    begins = recorded(run_of(out), "begin")
    # The trace starts after the skipped steps.
    first, count = PROFILED["skip_first"] + PROFILED["warmup"], PROFILED["active"] - 1
    recorded_ms = (begins[first + count] - begins[first]) / count / 1e6
    if analysis.step_ms is None:
        return Check(name, expected, f"{analysis.headline}; {traced.rows} rows", False)
    seen = f"{analysis.step_ms:.3f} ms in the trace, {recorded_ms:.3f} ms recorded; {_stages(analysis)}"
    return Check(
        name, expected, seen, bool(abs(analysis.step_ms / recorded_ms - 1) <= STEP_TOLERANCE)
    )


def _stages(analysis: ss.Analysis) -> str:
    return ", ".join(f"{name} {ms:.2f}" for name, ms in analysis.ledger["ms"].items())


def _stamps(run: Run) -> dict[str, Any]:
    # The clock's error is known at the end.
    return dict(run.logs[-1].facts.get("stamps") or {})
