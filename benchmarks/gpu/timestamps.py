"""Compare recorded timestamps with the training's CUDA events and with torch.profiler's trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import stallscope as ss
from stallscope.run import Run

from .launching import Check, recorded, run_of, truth_of

#: The device's clock is known up to the time that an idle device takes to answer. A device that waits
#: reaches our timestamp when the host enqueues it, and the training's event a little later.
TOLERANCE_US, WAITING_TOLERANCE_US = 50.0, 200.0
#: torch.profiler itself converts the device's times to the host's clock.
PROFILER_TOLERANCE_US = 150.0
#: Largest difference of step times in the profiler's trace and in our log, as a share.
STEP_TOLERANCE = 0.05
_SKIPPED = 10


def against_events(
    out: Path,
    title: str,
    names: tuple[str, ...] = ("data", "ready", "end"),
    tolerance_us: float = TOLERANCE_US,
) -> list[Check]:
    """Compare the timestamps of rank 0 with the training's own events."""
    run, truth = run_of(out), truth_of(out)
    error_us = truth["error_ns"] / 1e3 + (_stamps(run).get("clock_error_us") or 0.0)
    checks = []
    for name in names:
        own = np.array([one[name] for one in truth["steps"]], np.float64)
        difference = np.abs(recorded(run, name) - own)[_SKIPPED:] / 1e3
        known = difference[np.isfinite(difference)]
        if len(known) < len(difference) or not len(known):
            seen = f"{len(difference) - len(known)} of {len(difference)} are missing"
            checks.append(Check(f"{title}: {name}", "recorded", seen, False))
            continue
        median, most = np.median(known), np.quantile(known, 0.99)
        seen = f"median {median:.1f} µs, 99 % within {most:.1f} µs"
        limit = tolerance_us + error_us
        checks.append(
            Check(f"{title}: {name}", f"99 % within {limit:.0f} µs", seen, bool(most <= limit))
        )
    return checks


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
    ends = _ends_of_backward(json.loads((out / "trace.json").read_text()))
    checks = [_trace_steps(out, run)]
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
    kernels = np.array([one["ts"] + one["dur"] for one in events if one["cat"] == "kernel"])
    last = [kernels[kernels <= update].max() for update in updates if (kernels <= update).any()]
    return np.array([round(end * 1e3) + zero for end in last], np.int64)


def _trace_steps(out: Path, run: Run) -> Check:
    name, expected = (
        "profiler: its trace as a run",
        f"step time within {STEP_TOLERANCE:.0%} of the log's",
    )
    traced = ss.open_run(str(out / "trace.json"))
    found = ss.analyse(traced)
    begins = recorded(run, "begin")
    # The trace starts after the skipped steps.
    first = 23
    own = (begins[first + 9] - begins[first]) / 9 / 1e6
    if found.step_ms is None:
        return Check(name, expected, f"{found.headline}; {traced.rows} rows", False)
    seen = f"{found.step_ms:.3f} ms in the trace, {own:.3f} ms recorded; {_stages(found)}"
    return Check(name, expected, seen, bool(abs(found.step_ms / own - 1) <= STEP_TOLERANCE))


def _stages(found: ss.Analysis) -> str:
    return ", ".join(f"{name} {ms:.2f}" for name, ms in found.ledger["ms"].items())


def _stamps(run: Run) -> dict[str, Any]:
    # The clock's error is known at the end.
    return dict(run.logs[-1].facts.get("stamps") or {})
