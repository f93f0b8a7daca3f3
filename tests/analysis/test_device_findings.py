"""Findings about a device that waits for its host: values read in each step, and memory that is full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from support.findings import CLEAN, Row, codes, finding_of, with_facts, with_steps
from support.step_logs import run_of_job

from stallscope.run import Run

RETRY_MS = 80
LATE_STEPS = (50, 150, 250, 350)
TIMES = ("begin", "data", "ready", "reduced", "end")
FULL = {"kept_bytes": 70 * 10**9, "used_bytes": 41 * 10**9}


def run_with_retries(folder: Path, late_steps: tuple[int, ...] = LATE_STEPS) -> Run:
    """Return a run of one rank with a retry in these steps, known only to within some steps."""
    job = replace(CLEAN, ranks=1, steps=400, epochs=1, tracing_ms=0.0)

    def later(row: Row) -> Row:
        delay = sum(row["step"] >= late for late in late_steps) * RETRY_MS * 10**6
        begin = sum(row["step"] > late for late in late_steps) * RETRY_MS * 10**6
        moved = {name: row[name] + delay for name in TIMES[1:]}
        return {**row, **moved, "begin": row["begin"] + begin}

    spans = [[late - 7, late + 5, 1] for late in late_steps]
    fact = {"count": len(spans), "spans": spans, **FULL}
    return with_facts(with_steps(run_of_job(folder, job), later), {"allocator_retries": fact})


def test_full_memory_has_the_cost_of_its_retries(tmp_path: Path) -> None:
    evidence = finding_of(run_with_retries(tmp_path), "memory_is_full").evidence
    assert evidence.startswith("Rank 0 found no memory 4 times")
    assert "kept up to 70.0 GB and used up to 41.0 GB" in evidence
    low, high = _interval(evidence)
    assert low < RETRY_MS < high
    assert high - low < RETRY_MS


def test_the_cost_of_few_retries_is_not_told(tmp_path: Path) -> None:
    evidence = finding_of(run_with_retries(tmp_path, (50, 150)), "memory_is_full").evidence
    assert "cannot be told" in evidence


def test_retries_that_delay_nothing_have_no_cost(tmp_path: Path) -> None:
    job = replace(CLEAN, ranks=1, steps=400, epochs=1)
    spans = [[late - 7, late + 5, 1] for late in LATE_STEPS]
    fact = {"count": 4, "spans": spans, **FULL}
    run = with_facts(run_of_job(tmp_path, job), {"allocator_retries": fact})
    assert "cannot be told" in finding_of(run, "memory_is_full").evidence


def test_lines_that_wait_are_named_for_the_rank_that_waits_most(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    run = with_facts(run, {"host_syncs": syncs(1.0, "C:\\\\work\\\\train.py", "step")}, [0, 1, 2])
    run = with_facts(run, {"host_syncs": syncs(2.5, "/home/me/metrics.py", "update")}, [3])
    evidence = finding_of(run, "host_waits_for_device").evidence
    assert evidence.startswith(
        "Rank 3 waited 2.5 times per step in 400 steps: metrics.py:12 in update"
    )


def test_a_read_once_in_many_steps_is_no_finding(tmp_path: Path) -> None:
    run = with_facts(run_of_job(tmp_path, CLEAN), {"host_syncs": syncs(0.05, "train.py", "step")})
    assert "host_waits_for_device" not in codes(run)


COPIES = {"timed": 40, "us": 3000.0, "us_sd": 200.0, "bytes": 26_000_000}


def test_copies_have_their_share_of_a_batch_and_advice_for_the_loader(tmp_path: Path) -> None:
    job = replace(CLEAN, ranks=2, steps=400, epochs=1, tracing_ms=0.0)
    run = run_of_job(tmp_path, job)
    slower = with_facts(run, {"device_copies": COPIES, "loader": {"pinned": False}}, [1])
    finding = finding_of(slower, "copies_to_device")
    assert finding.evidence.startswith("On rank 1 a batch of 26.0 MB is copied to the device in ")
    assert "3.00 ± 0.06 ms" in finding.evidence
    assert "40 timed" in finding.evidence
    assert "pin_memory=True" in str(finding.advice[0])
    pinned = with_facts(run, {"device_copies": COPIES, "loader": {"pinned": True}}, [1])
    assert "stream of its own" in str(finding_of(pinned, "copies_to_device").advice[0])
    quick = with_facts(run, {"device_copies": {**COPIES, "us": 20.0}})
    assert "copies_to_device" not in codes(quick)
    few = with_facts(run, {"device_copies": {**COPIES, "timed": 3}})
    assert "copies_to_device" not in codes(few)


def syncs(per_step: float, file: str, function: str) -> dict[str, Any]:
    line = {"at": [file, 12, function], "per_step": per_step}
    return {"steps": 400, "per_step": per_step, "lines": [line]}


def _interval(evidence: str) -> tuple[float, float]:
    """Return the interval of the last figure in parentheses."""
    low, high = evidence.rpartition("(")[2].partition(")")[0].split(" to ")
    return float(low), float(high)
