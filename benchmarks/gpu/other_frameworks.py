"""Check other frameworks on a GPU: what they record, loops in JAX, and ranks of Horovod."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

import stallscope as ss

from . import timestamps, verdicts
from .frameworks import CONNECTED, COPIED_BYTES, FRAMEWORKS, STEPS
from .launching import (
    Check,
    TrainingError,
    recorded,
    run_of,
    start,
    train,
    truth_of,
    under_horovodrun,
    under_torchrun,
)

#: Trainings of frameworks at a time; their times are not compared.
_AT_ONCE = 4
_STEPS = 100
#: A thread of the recorder and the training both wake up once a result is ready.
_READY_US = 1000.0
_HELD_SHARE = 0.02
_COPIES_SHARE = 0.15
_STAGES = ("data", "ready", "reduced")


def check_frameworks(out: Path, device: str) -> Iterator[Check]:
    with ThreadPoolExecutor(_AT_ONCE) as trainings:
        yield from trainings.map(lambda name: _framework(out / name, name, device), FRAMEWORKS)


def _framework(folder: Path, name: str, device: str) -> Check:
    expected = f"{STEPS} steps, on the device's clock all timestamps"
    launcher = under_torchrun() if name in CONNECTED else None
    try:
        start(folder, "gpu.frameworks", str(folder), name, device, launcher=launcher)
    except TrainingError as error:
        missing = "ModuleNotFoundError" in str(error)
        return Check(
            name, expected, "not installed" if missing else str(error), None if missing else False
        )
    run = run_of(folder)
    steps = run.steps.filter(pc.equal(run.steps["rank"], 0))
    count = int(pc.sum(steps["micro"]).as_py() or 0)
    timed_stages = [stage for stage in _STAGES if steps[stage].null_count < len(steps) // 2]
    stamps = dict(run.logs[-1].facts.get("stamps") or {})
    stages = ", ".join(["begin", *timed_stages, "end"])
    seen = f"{count} steps with {stages}; clock {stamps.get('clock') or 'of the host'}"
    if name in CONNECTED:
        seen += f"; {len(run.logs)} ranks, {verdicts.reduces_with(folder)}"
    seen += f"; {stamps['reason']}" if stamps.get("reason") else ""
    whole = stamps.get("clock") != "cuda" or len(timed_stages) == len(_STAGES)
    return Check(name, expected, seen, count == STEPS and whole)


def check_copies(out: Path, device: str) -> Iterator[Check]:
    """Compare the recorded copies to the device with the training's own times of them."""
    folder, title = out / "copies", "copies of batches to the device, with Accelerate"
    if importlib.util.find_spec("accelerate") is None:
        yield Check(title, "timed", "not installed", None)
        return
    start(folder, "gpu.frameworks", str(folder), "copies", device)
    truth = np.median(json.loads((folder / "copies.json").read_text())) * 1e3
    fact = run_of(folder).logs[0].facts.get("device_copies") or {}
    seen = f"{fact.get('us')} µs in {fact.get('timed', 0)} copies of {fact.get('bytes')} bytes"
    good = bool(fact) and abs(fact["us"] / truth - 1) < _COPIES_SHARE
    good = good and fact["bytes"] == COPIED_BYTES
    yield Check(title, f"{truth:.0f} µs", seen, good if device == "cuda" else None)


def check_jax(out: Path, device: str) -> Iterator[Check]:
    folder = out / "jax"
    if importlib.util.find_spec("jax") is None:
        yield Check("JAX loops", "recorded", "not installed", None)
        return
    start(folder, "gpu.jax_loop", str(folder), device)
    on = (folder / "device.txt").read_text()
    waits, ahead = folder / "waits", folder / "ahead"
    for case in sorted(logs.parent for logs in folder.glob("*/logs")):
        steps, trained = run_of(case).steps, len(truth_of(case)["steps"])
        missing = {stage: steps[stage].null_count for stage in (*_STAGES, "end")}
        good = len(steps) == trained and not any(missing.values())
        seen = f"{len(steps)} steps on {on}, missing: {missing}"
        yield Check(f"JAX, {case.name}: timestamps", f"all of {trained} steps", seen, good)
    ends = np.array([step["end"] for step in truth_of(waits)["steps"]], np.float64)
    late = (recorded(run_of(waits), "end") - ends) / 1e3
    most = float(np.quantile(np.abs(late), 0.95))
    seen = f"median {np.median(late):.0f} µs after block_until_ready returns, 95 % within {most:.0f} µs"
    yield Check("JAX: end", f"within {_READY_US:.0f} µs", seen, most <= _READY_US)
    yield _whole_loop(ahead)
    analysis = ss.analyse(str(folder / "slow-input" / "logs"))
    seen = f"{analysis.verdict}: {analysis.headline}"
    yield Check("JAX: slow input", "input", seen, analysis.verdict == "input")


def _whole_loop(out: Path) -> Check:
    """Compare the length of a loop whose host runs ahead: steps end when the device has done them."""
    truth, run = truth_of(out)["steps"], run_of(out)
    truth_ms = (truth[-1]["end"] - truth[0]["data"]) / 1e6
    seen = (recorded(run, "end")[-1] - recorded(run, "data")[0]) / 1e6
    steps = np.diff(recorded(run, "end")) / 1e6
    text = (
        f"{seen:.1f} of {truth_ms:.1f} ms; steps of {np.median(steps):.2f} to {steps.max():.2f} ms"
    )
    return Check(
        "JAX: a loop that runs ahead",
        f"its length within {_HELD_SHARE:.0%}",
        text,
        abs(seen / truth_ms - 1) <= _HELD_SHARE,
    )


def check_horovod(out: Path, device: str) -> Iterator[Check]:
    if importlib.util.find_spec("horovod") is None:
        yield Check("Horovod on two ranks", "recorded", "not installed", None)
        return
    clean, slow = out / "horovod-clean", out / "horovod-slow-compute"
    for folder in (clean, slow):
        train(folder, folder.name, device, _STEPS, under_horovodrun())
    library, expected = verdicts.reduces_with(clean), "nccl" if device == "cuda" else "gloo"
    yield Check("Horovod: the log names", expected, library, expected in library)
    # The host waits for every reduction, so the training's own mark of *data* comes later.
    names = ("ready", "reduced", "end")
    yield from timestamps.against_events(clean, "Horovod", names, share=timestamps.RANKS_SHARE)
    yield verdicts.no_rank_is_slow(clean)
    yield verdicts.slow_rank(slow, "compute")
