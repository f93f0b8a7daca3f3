"""Check Stallscope on a machine with one NVIDIA GPU or more, and print a report to paste (docs/gpu.md).

    python benchmarks/gpu_check.py [--device cpu] [--only PART …] [--out FOLDER]

It needs PyTorch for CUDA and ``stallscope[app]`` in this Python's environment, and about five minutes.
It trains small networks with known faults, compares the recorded timestamps with CUDA events and
torch.profiler, and measures what recording costs. With one GPU, two ranks share it and reduce with
gloo; with two, NCCL does. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.compute as pc
from gpu import timestamps, verdicts
from gpu.frameworks import CONNECTED, FRAMEWORKS, STEPS
from gpu.launching import Check, TrainingError, run_of, start
from paired import over_rounds

import stallscope as ss

_LONG, _MANY = 400, 150
#: Trainings of frameworks at a time; their times are not compared.
_AT_ONCE = 4
_ROUNDS, _LAPS = 8, 100
#: What recording a step may add, in microseconds.
_MOST_US = 50


def parts(out: Path, device: str) -> dict[str, Callable[[], Iterator[Check]]]:
    """Return the parts of the check by name."""
    return {
        "timestamps": lambda: check_timestamps(out, device),
        "faults": lambda: check_faults(out, device),
        "cost": lambda: check_cost(out, device),
        "frameworks": lambda: check_frameworks(out, device),
        "machine": lambda: check_machine_figures(out, device),
        "network": lambda: check_network(out),
    }


def check_timestamps(out: Path, device: str) -> Iterator[Check]:
    for case, steps in (("clean", _LONG), ("slow-input-all", _MANY), ("profiled", 60)):
        start(out / case, "train.py", case, device, str(steps))
    yield timestamps.clock(out / "clean", device)
    yield verdicts.own_steps(out / "clean")
    yield from timestamps.against_events(out / "clean", "busy device")
    yield from timestamps.against_events(
        out / "slow-input-all",
        "device that waits",
        tolerance_us=timestamps.WAITING_TOLERANCE_US,
    )
    yield from timestamps.against_profiler(out / "profiled")


def check_faults(out: Path, device: str) -> Iterator[Check]:
    if not (out / "slow-input-all" / "logs").is_dir():
        for case in ("clean", "slow-input-all"):
            start(out / case, "train.py", case, device, str(_MANY))
    yield from verdicts.slow_input(out / "slow-input-all", out / "clean")
    for case in ("ranks-clean", "ranks-slow-input", "ranks-slow-compute"):
        start(out / case, "train.py", case, device, str(_MANY), ranks=2)
    yield from timestamps.against_events(out / "ranks-clean", "two ranks", ("ready", "reduced"))
    yield verdicts.no_rank_is_slow(out / "ranks-clean")
    yield verdicts.slow_rank(out / "ranks-slow-input", "input")
    yield verdicts.slow_rank(out / "ranks-slow-compute", "compute")


def check_cost(out: Path, device: str) -> Iterator[Check]:
    program = str(Path(__file__).parent / "torch_overhead_training.py")
    for layers in (10, 80):
        folder = out / f"cost-{layers}"
        words = (str(folder), str(_ROUNDS), str(_LAPS), str(layers), device)
        start(folder, "", *words, under=(program,))
        result = json.loads((folder / "result.json").read_text())
        found = over_rounds(result["added_us"]["steplogger"])
        seen = f"{found.value:.1f} µs (95 % interval: {found.low:.1f} to {found.high:.1f})"
        seen += f" of {result['step_us']:.0f} µs"
        yield Check(
            f"added per step, {2 * layers} gradients", "under 100 µs", seen, found.high < 100
        )


def check_frameworks(out: Path, device: str) -> Iterator[Check]:
    with ThreadPoolExecutor(_AT_ONCE) as trainings:
        yield from trainings.map(lambda name: _framework(out / name, name, device), FRAMEWORKS)


def _framework(folder: Path, name: str, device: str) -> Check:
    expected = f"{STEPS} steps"
    try:
        start(folder, "frameworks.py", name, device, ranks=int(name in CONNECTED))
    except TrainingError as error:
        missing = "ModuleNotFoundError" in str(error)
        return Check(
            name, expected, "not installed" if missing else str(error), None if missing else False
        )
    run = run_of(folder)
    count = int(pc.sum(run.steps["micro"]).as_py() or 0)
    there = [
        one for one in ("data", "ready", "reduced") if run.steps[one].null_count < run.rows // 2
    ]
    stamps = dict(run.logs[-1].facts.get("stamps") or {})
    stages = ", ".join(["begin", *there, "end"])
    seen = f"{count} steps with {stages}; clock {stamps.get('clock', 'of the host')}"
    return Check(
        name,
        expected,
        seen + (f"; {stamps['reason']}" if stamps.get("reason") else ""),
        count == STEPS,
    )


def check_machine_figures(out: Path, device: str) -> Iterator[Check]:
    folder = out / "machine"
    start(folder, "train.py", "slow-input-all", device, str(_MANY))
    figures = ss.open_run(str(folder / "logs")).machines
    means = figures[figures["name"].str.contains("gpu")].groupby("name")["value"].mean()
    seen = ", ".join(f"{name} {mean:.0f}" for name, mean in means.items()) or "none"
    good = None if device == "cpu" else len(means) > 0
    yield Check("figures of the GPU", "use, memory, clock, limits", seen, good)


def check_network(out: Path) -> Iterator[Check]:
    logs = str(out / "ranks-clean" / "logs")
    start(
        out / "network",
        "",
        "netcheck",
        logs,
        "--seconds",
        "10",
        ranks=2,
        under=("-m", "stallscope"),
    )
    (found,) = Path(logs).glob("*.netcheck.json")
    content = json.loads(found.read_text())
    seen = f"{content.get('device')}, {content.get('reduces_with')}"
    yield Check("netcheck on two ranks", "a measurement", seen, bool(content.get("device")))


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


def failed_part(error: Exception, name: str) -> Check:
    return Check(name, "runs", f"{type(error).__name__}: {error}", False)


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu is for trying this program"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PART",
        help="timestamps, faults, cost, frameworks, machine, network",
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
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        print(
            "\n".join(
                [
                    "# Stallscope on a GPU",
                    "",
                    *machine(),
                    "",
                    "| check | expected | seen | |",
                    "| --- | --- | --- | --- |",
                ]
            )
        )
        failed = 0
        for name, part in parts(out, options.device).items():
            if options.only and name not in options.only:
                continue
            try:
                for check in part():
                    failed += check.passed is False
                    print(_line(check), flush=True)
            except Exception as error:  # the other parts are checked all the same
                failed += 1
                print(_line(failed_part(error, name)), flush=True)
    print(f"\n{failed} failed")
    return int(failed > 0)


def _line(check: Check) -> str:
    verdict = {True: "ok", False: "**failed**", None: "–"}[check.passed]
    cells = (check.what, check.expected, check.seen, verdict)
    return "| " + " | ".join(one.replace("|", "\\|").replace("\n", " ") for one in cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
