"""Check Stallscope on a machine with one NVIDIA GPU or more, and print a report to paste (docs/gpu.md).

    python benchmarks/gpu_check.py [--device cpu] [--only PART …] [--out FOLDER]

It needs PyTorch for CUDA and ``stallscope[app]`` in this Python's environment, and about eight
minutes. It trains small networks with known faults, compares the recorded timestamps with CUDA events
and torch.profiler, and measures what recording costs. NCCL connects two ranks, on one GPU as two hosts;
if it does not, gloo does. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu import machine_figures, other_frameworks, several_ranks, timestamps, verdicts
from gpu.cases import GROWS_EVERY, PROFILED_STEPS
from gpu.launching import Check, start, train, under_torchrun
from paired import over_rounds

_LONG, _MANY = 400, 150
_ROUNDS, _LAPS = 8, 100
# Enough steps for the seconds in which the recorder counts waits.
_MANY_SECONDS = 700
_STEPS_BY_PART = 1500
_HIDDEN_SHARE, _MOST_TIMES = 0.01, 3

Part = Callable[[Path, str], Iterator[Check]]


def check_faults(out: Path, device: str) -> Iterator[Check]:
    for case in ("clean-ranks", "slow-input-ranks", "slow-compute-ranks"):
        train(out / case, case, device, _MANY, under_torchrun())
    library = verdicts.reduces_with(out / "clean-ranks")
    yield from timestamps.against_events(
        out / "clean-ranks",
        f"two ranks, {library}",
        ("data", "ready", "reduced", "end"),
        share=timestamps.RANKS_SHARE,
    )
    yield verdicts.no_rank_is_slow(out / "clean-ranks")
    yield verdicts.slow_rank(out / "slow-input-ranks", "input")
    yield verdicts.slow_rank(out / "slow-compute-ranks", "compute")


def check_timestamps(out: Path, device: str) -> Iterator[Check]:
    for case, steps in (("clean", _LONG), ("slow-input-all", _MANY), ("profiled", PROFILED_STEPS)):
        train(out / case, case, device, steps)
    yield timestamps.clock(out / "clean", device)
    yield verdicts.own_steps(out / "clean")
    yield from timestamps.against_events(out / "clean", "busy device")
    yield from timestamps.against_events(
        out / "slow-input-all",
        "device that waits",
        tolerance_us=timestamps.WAITING_TOLERANCE_US,
    )
    yield from timestamps.against_profiler(out / "profiled")
    yield from verdicts.slow_input(out / "slow-input-all", out / "clean")


def check_cost(out: Path, device: str) -> Iterator[Check]:
    for layers in (10, 80):
        folder = out / f"cost-{layers}"
        words = (str(folder), str(_ROUNDS), str(_LAPS), str(layers), device)
        start(folder, "torch_overhead_training", *words)
        result = json.loads((folder / "result.json").read_text())
        added = over_rounds(result["added_us"]["steplogger"])
        seen = f"{added.value:.1f} µs (95 % interval: {added.low:.1f} to {added.high:.1f})"
        seen += f" of {result['step_us']:.0f} µs"
        yield Check(f"added per step, {2 * layers} gradients", "–", seen, None)


def check_cost_by_part(out: Path, device: str) -> Iterator[Check]:
    folder = out / "cost-by-part"
    start(folder, "gpu.cost_parts", str(folder), str(_STEPS_BY_PART), "10", device)
    result = json.loads((folder / "result.json").read_text())
    medians = {arm: added["all"][0] for arm, added in result["added"].items()}
    for arm, added in result["added"].items():
        median, low, high = added.pop("all")
        seen = f"{median} µs ({low} to {high}) of {result['step_us']:.0f}; {_named(added)}"
        yield Check(f"20 gradients, {arm}: added, and in each part", "–", seen, None)
    times = medians["recorder"] / medians["three events"]
    yield Check(
        "the recorder against three events that nothing reads",
        f"at most {_MOST_TIMES} times",
        f"{times:.1f} times",
        times <= _MOST_TIMES if device == "cuda" else None,
    )
    yield Check("torch's own calls by themselves", "–", _named(result["calls_us"]), None)
    median, low, high = result["busy"]["added"]
    step_us = result["busy"]["step_us"]
    seen = f"{median} µs ({low} to {high}) of {step_us:.0f} µs"
    hidden = median < _HIDDEN_SHARE * step_us
    passed = hidden if device == "cuda" else None
    yield Check("a busy device hides the cost: added", f"under {_HIDDEN_SHARE:.0%}", seen, passed)


def _named(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def check_waits(out: Path, device: str) -> Iterator[Check]:
    cases = {"waits": _MANY_SECONDS, "full": _MANY_SECONDS, "captures": _LONG}
    for case, steps in cases.items():
        train(out / case, case, device, steps)
    if device == "cuda":
        yield verdicts.lines_that_wait(out / "waits")
        yield verdicts.full_memory(out / "full", cases["full"] // GROWS_EVERY)
    yield verdicts.complete_stages(out / "captures", "graphs captured while timestamps are read")


#: The parts of the check by name, those first that more depends on.
TIMED: dict[str, Part] = {
    "faults": check_faults,
    "buffers": several_ranks.check_buffers,
    "traces": several_ranks.check_traces,
    "jax": other_frameworks.check_jax,
    "horovod": other_frameworks.check_horovod,
    "waits": check_waits,
    "copies": other_frameworks.check_copies,
    "machine": machine_figures.check_machine_figures,
    "timestamps": check_timestamps,
    "cost": check_cost,
    "parts": check_cost_by_part,
}
#: Those whose times are not compared: they run at the same time, before the others.
UNTIMED: dict[str, Part] = {
    "flight": several_ranks.check_flight_recorder,
    "network": several_ranks.check_network,
    "frameworks": other_frameworks.check_frameworks,
}
_PARTS = [*UNTIMED, *TIMED]


def machine() -> list[str]:
    """Describe the machine in lines."""
    import torch

    lines = [
        f"- torch {torch.__version__}, CUDA {torch.version.cuda}, Python {sys.version.split()[0]}"
    ]
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except OSError:
        answer = ""
    return [*(f"- {line}" for line in answer.splitlines()), *lines]


def run_part(name: str, part: Part, out: Path, device: str) -> list[Check]:
    """Return a part's checks; an error is one that has failed, and the other parts run all the same."""
    checks: list[Check] = []
    try:
        checks += part(out, device)
    except Exception as error:
        checks.append(Check(name, "runs", f"{type(error).__name__}: {error}", False))
    return checks


def all_checks(out: Path, device: str, only: Sequence[str]) -> Iterator[Check]:
    """Yield the checks of all parts, or of some."""
    yield several_ranks.choose_backend(out, device)
    untimed = {name: part for name, part in UNTIMED.items() if not only or name in only}
    with ThreadPoolExecutor(len(UNTIMED)) as beside:
        running = [
            beside.submit(run_part, name, part, out, device) for name, part in untimed.items()
        ]
        for future in running:
            yield from future.result()
    for name, part in TIMED.items():
        if not only or name in only:
            yield from run_part(name, part, out, device)


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu is for trying this program"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="PART", choices=_PARTS, default=[], help=", ".join(_PARTS)
    )
    parser.add_argument(
        "--out", type=Path, help="folder for the trainings' logs (default: a temporary one)"
    )
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "gpu_check.py: this PyTorch sees no CUDA device; --device cpu is for trying this program"
        )
        return 2
    if importlib.util.find_spec("plotly") is None:
        print("gpu_check.py: this needs the app in the same environment: pip install '.[app]'")
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        print("# Stallscope on a GPU", "", *machine(), "", sep="\n")
        print("| check | expected | seen | |", "| --- | --- | --- | --- |", sep="\n", flush=True)
        failed = 0
        for check in all_checks(options.out or Path(temporary), options.device, options.only):
            failed += check.passed is False
            print(_line(check), flush=True)
    print(f"\n{failed} failed")
    return int(failed > 0)


def _line(check: Check) -> str:
    verdict = {True: "ok", False: "**failed**", None: "–"}[check.passed]
    cells = (check.what, check.expected, check.seen, verdict)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
