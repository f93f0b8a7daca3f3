"""Check two ranks: buffers, traces with communication, the Flight Recorder, and netcheck."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from stallscope.errors import NotFoundError
from stallscope.parsers import read
from stallscope.parsers.formats.flight_recorder import parse_dump

from . import timestamps, verdicts
from .cases import PROFILED_STEPS
from .launching import Check, TrainingError, start, train, under_torchrun
from .ranks import BACKEND
from .skip_collective import COLLECTIVES

_STEPS = 100


def choose_backend(out: Path, device: str) -> Check:
    """Try NCCL on two ranks, and let all later trainings take gloo if it fails."""
    expected, alone = "NCCL", torch.cuda.device_count() < 2
    where = f"two ranks on {'one GPU' if alone else 'two GPUs'}"
    if device == "cpu":
        return Check("two ranks on the CPU", "gloo", "not tried", None)
    try:
        start(out / "nccl", "gpu.ranks", launcher=under_torchrun())
    except TrainingError as error:
        os.environ[BACKEND] = "gloo"
        return Check(where, expected, f"gloo, as NCCL failed: {error}", False)
    version = ".".join(map(str, torch.cuda.nccl.version()))
    seen = f"NCCL {version}" + ", as two hosts that sockets connect" * alone
    return Check(where, expected, seen, True)


def check_buffers(out: Path, device: str) -> Iterator[Check]:
    folder = out / "buffers-slow-input"
    train(folder, folder.name, device, _STEPS, under_torchrun())
    yield timestamps.without_broadcasts(folder, 1)
    yield verdicts.slow_rank(folder, "input", rank=0)


def check_traces(out: Path, device: str) -> Iterator[Check]:
    folder = out / "profiled-ranks"
    train(folder, folder.name, device, PROFILED_STEPS, under_torchrun())
    yield from timestamps.traced_ranks(folder)


def check_flight_recorder(out: Path, device: str) -> Iterator[Check]:
    folder = out / "flight"
    # Ranks that hang end with an error if they write no dumps.
    with contextlib.suppress(TrainingError):
        start(folder, "gpu.skip_collective", str(folder), device, launcher=under_torchrun())
    complete = {}
    for path in sorted((folder / "before").iterdir()):
        rank = int(path.name.rpartition("_")[2])
        dump = parse_dump(path.name, path.read_bytes(), prefix="trace_rank_", rank=rank)
        complete[rank] = sum(entry.completed for entry in dump.entries)
    what = "Flight Recorder: complete collectives"
    good = complete == {0: COLLECTIVES, 1: COLLECTIVES}
    yield Check(what, f"{COLLECTIVES} of each rank", f"by rank: {complete}", good)
    try:
        seen = f"{len(read(str(folder / 'hanging')))} runs"
    except NotFoundError as error:
        seen = str(error).rpartition(" next to them. ")[2]
    good = f"Rank 1 is not in all_reduce {COLLECTIVES + 1}" in seen
    yield Check("Flight Recorder: rank 1 leaves out all_reduce", "rank 1 is named", seen, good)


def check_network(out: Path, device: str) -> Iterator[Check]:
    folder = out / "network"
    train(folder, "clean-ranks", device, 30, under_torchrun())
    words = ("netcheck", str(folder / "logs"), "--seconds", "10")
    start(folder, "stallscope", *words, launcher=under_torchrun())
    (path,) = (folder / "logs").glob("*.netcheck.json")
    content = json.loads(path.read_text())
    libraries = ", ".join(content.get("reduces_with") or [])
    sweep = {
        point["bytes"]: sorted(point["us"])[len(point["us"]) // 2] for point in content["sweep"]
    }
    times = ", ".join(f"{size >> 10} KiB {us:.0f} µs" for size, us in sweep.items())
    seen = f"{content.get('device')}, {libraries}: {times}"
    expected = os.environ.get(BACKEND, "nccl") if device == "cuda" else "gloo"
    yield Check("netcheck on two ranks", expected, seen, libraries == expected)
