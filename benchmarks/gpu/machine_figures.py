"""Check the figures of the GPU in the log, and its power cap against nvidia-smi."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import stallscope as ss

from .launching import Check, start

_SECONDS = 12
_LOOK_EVERY_SECONDS = 0.5
_FIGURES = ("gpu_busy", "gpu_memory", "gpu_clock", "gpu_power_capped", "gpu_too_hot")
_QUERY = (
    "nvidia-smi",
    "--query-gpu=power.draw,power.limit,clocks.sm,clocks_event_reasons.active",
    "--format=csv,noheader,nounits",
)
# From nvml.h: the power cap and the power brake.
_POWER = 0x04 | 0x80


def check_machine_figures(out: Path, device: str) -> Iterator[Check]:
    """Train with products that take much power: an observation, as not every GPU reaches its cap."""
    folder = out / "matmuls"
    looks: list[str] = []
    done = threading.Event()
    asking = threading.Thread(target=_ask, args=(looks, done), daemon=True)
    if device == "cuda":
        asking.start()
    try:
        start(folder, "gpu.matmuls", str(folder), device, str(_SECONDS))
    finally:
        done.set()
    figures = ss.open_run(str(folder / "logs")).machines
    values = {name: group["value"] for name, group in figures.groupby("name")}
    missing = [name for name in _FIGURES if name not in values]
    seen = ", ".join(_range_of(values, name) for name in _FIGURES if name in values) or "none"
    expected = ", ".join(_FIGURES)
    yield Check("figures of the GPU", expected, seen, None if device == "cpu" else not missing)
    if looks and "gpu_power_capped" in values:
        yield _power_cap(values["gpu_power_capped"], looks)


def _ask(looks: list[str], done: threading.Event) -> None:
    """Ask nvidia-smi until the training is done."""
    while not done.wait(_LOOK_EVERY_SECONDS):
        try:
            answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return
        looks += answer.stdout.splitlines()[:1]


def _range_of(values: dict[str, pd.Series], name: str) -> str:
    column = values[name]
    return f"{name} {column.min():.0f} to {column.max():.0f}"


def _power_cap(recorded: pd.Series, looks: list[str]) -> Check:
    """Compare how often the log and nvidia-smi have seen the power cap; both only look now and then."""
    rows = [line.split(",") for line in looks if "N/A" not in line]
    known = [row for row in rows if len(row) == 4 and row[3].strip().startswith("0x")]
    busy = [row for row in known if float(row[0]) > float(row[1]) / 2]
    capped = sum(bool(int(row[3], 16) & _POWER) for row in busy)
    power = max((float(row[0]) for row in known), default=float("nan"))
    seen = (
        f"in {(recorded > 0).sum()} of {len(recorded)} figures; nvidia-smi: in {capped} of {len(busy)} "
        f"looks above half of the power, at most {power:.0f} W"
    )
    good = None if not capped else bool(recorded.any())
    return Check("power cap", "in the log if nvidia-smi sees it", seen, good)
