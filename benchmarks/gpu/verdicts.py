"""Check the analysis of trainings with known faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import stallscope as ss

from .launching import Check, run_of, truth_of

_SHARE = 0.2


def slow_input(faulty: Path, fixed: Path) -> list[Check]:
    """Check the verdict on slow input, and its gain against a training without the fault."""
    slow, clean = ss.analyse(str(faulty / "logs")), ss.analyse(str(fixed / "logs"))
    verdict = Check(
        "slow input: verdict",
        "input",
        f"{slow.verdict}: {slow.headline}",
        slow.verdict == "input",
    )
    if "input" not in slow.gains.index or not slow.step_ms or not clean.step_ms:
        return [verdict, Check("slow input: gain", "a prediction", "there is none", False)]
    predicted, saved = float(slow.gains.loc["input", "saved_ms"]), slow.step_ms - clean.step_ms
    seen = f"{slow.step_ms:.2f} ms: predicted to save {predicted:.2f} ms, and saved {saved:.2f} ms"
    good = abs(predicted / saved - 1) <= _SHARE
    expected = f"within {_SHARE:.0%} of the real saving"
    return [verdict, Check("slow input: gain", expected, seen, good)]


def slow_rank(out: Path, stage: str, rank: int = 1) -> Check:
    """Check that the rank is found which is slow by a known time in one stage."""
    analysis = ss.analyse(str(out / "logs"))
    name = f"{out.name}: rank {rank} slow in {stage}"
    # On the device less than on the host, which loads while the device is busy; and ranks that share a
    # device slow each other down.
    fault_ms = _own_of(out, stage, rank) - _own_of(out, stage, 1 - rank)
    expected = f"rank {rank}, {stage}, {fault_ms:.0f} ms within {_SHARE:.0%}"
    rows = _named(analysis)
    if not len(rows):
        return Check(name, expected, f"no rank is named: {analysis.headline}", False)
    first = rows.iloc[0]
    seen = f"ranks {first['ranks']}, {first['stage']}, {first['excess_ms']:.1f} ms ({analysis.headline})"
    good = tuple(first["ranks"]) == (rank,) and first["stage"] == stage
    return Check(
        name, expected, seen, bool(good and abs(first["excess_ms"] / fault_ms - 1) <= _SHARE)
    )


def _own_of(out: Path, stage: str, rank: int) -> float:
    """Return the milliseconds of a rank's stage in a step, by the training's own events."""
    steps = pd.DataFrame(truth_of(out, rank)["steps"])
    took = (
        steps["ready"] - steps["data"]
        if stage == "compute"
        else steps["data"] - steps["end"].shift()
    )
    return float(took.median()) / 1e6


def no_rank_is_slow(out: Path) -> Check:
    analysis = ss.analyse(str(out / "logs"))
    count = len(_named(analysis))
    seen = f"{count} named: {analysis.headline}"
    return Check(f"{out.name}: no fault", "no rank is named", seen, not count)


def reduces_with(out: Path) -> str:
    """Name the library that reduced, as the log has it."""
    return ", ".join(run_of(out).logs[-1].facts.get("reduces_with") or ["nothing"])


def _named(analysis: ss.Analysis) -> pd.DataFrame:
    """Return the stragglers that are always the same ranks."""
    rows = analysis.stragglers
    return rows[rows["ranks"].map(len) > 0]


def own_steps(out: Path) -> Check:
    """Check the recorded step time against the training's own, on one rank."""
    ends = np.array([step["end"] for step in truth_of(out)["steps"]], np.float64)[-51:]
    expected_ms = float(np.diff(ends).mean()) / 1e6
    rows = run_of(out).steps.sort_by("step")
    mine = rows["end"].to_numpy()[-51:].astype(np.float64)
    seen = float(np.diff(mine).mean()) / 1e6
    return Check(
        "step time",
        f"{expected_ms:.3f} ms within 0.1 %",
        f"{seen:.3f} ms",
        abs(seen / expected_ms - 1) < 1e-3,
    )


def lines_that_wait(out: Path) -> Check:
    """Check that the two lines of ``read_twice`` are found, as often as they run."""
    fact = run_of(out).logs[0].facts.get("host_syncs") or {}
    lines = {line["at"][2]: line["per_step"] for line in fact.get("lines", ())}
    numbers = [line["at"][1] for line in fact.get("lines", ()) if line["at"][2] == "read_twice"]
    seen = f"{fact.get('per_step')} per step in {fact.get('steps')} steps: {lines}"
    twice = len(set(numbers)) == 2 and abs(fact.get("per_step", 0) - 2) <= 0.1
    return Check("lines that wait for the device", "2 lines, 2 waits per step", seen, twice)


def complete_stages(out: Path, name: str) -> Check:
    """Check that every step has all its timestamps, and that the device's clock did not break."""
    run = run_of(out)
    missing = sum(run.steps[column].null_count for column in ("data", "ready", "end"))
    stamps = run.logs[0].facts.get("stamps") or {}
    lost = stamps.get("turns_without_times")
    seen = f"{run.steps.num_rows} steps, {missing} timestamps missing, {lost} steps without times"
    if stamps.get("reason"):
        seen += f": {stamps['reason']}"
    return Check(name, "all timestamps", seen, missing == 0 and lost in (0, None))


def full_memory(out: Path, times: int) -> Check:
    """Check that the allocator's retries are counted, and the finding with its cost."""
    fact = run_of(out).logs[0].facts.get("allocator_retries") or {}
    findings = ss.analyse(str(out / "logs")).findings
    named = findings.loc[findings["code"] == "memory_is_full", "evidence"].tolist()
    seen = f"{fact.get('count')} retries; {named[0] if named else 'no finding'}"
    # The first look comes after some steps.
    good = bool(named) and 0.5 * times <= fact.get("count", 0) <= times
    return Check("full memory: retries of the allocator", f"up to {times}", seen, good)
