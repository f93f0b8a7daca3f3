"""Compare what an input probe measures with what the repaired input really achieves.

    python benchmarks/input_probe.py [--turns 4] [--only NAME …] [--horovod]

Two ranks train with a slow loader and with the repaired one, in turns of a few seconds, so that the
machine's drift affects both alike. The slow training's probes measure the step without input stalls, and
the repaired training's mean step is the truth.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from peers import TRAINING, output_of

BATCH, INPUTS, HIDDEN = 16, 64, 512
#: Iterations of a turn, each with one probe.
STEPS, BATCHES = 120, 20


class Fault(NamedTuple):
    """A slow loader: milliseconds per batch, whether they burn CPU, its workers, and one rank or all."""

    ms: float
    burns: bool = False
    workers: int = 0
    ranks: tuple[int, ...] = (0, 1)


FAULTS = {
    "sleeps on all ranks": Fault(30),
    "sleeps on rank 1": Fault(30, ranks=(1,)),
    "sleeps on all ranks, one worker": Fault(30, workers=1),
    "sleeps on rank 1, two workers": Fault(60, workers=2, ranks=(1,)),
    "burns on all ranks": Fault(20, burns=True),
    "burns on all ranks, one worker": Fault(20, burns=True, workers=1),
    "none": Fault(0),
}


# -- One rank ---------------------------------------------------------------------------------------


def train(name: str, folder: Path, turns: int) -> None:
    """Train with the slow and the repaired loader in turns, each with its own model and log."""
    import torch

    if "HOROVOD_RANK" in os.environ:
        import horovod.torch as hvd

        hvd.init()
        rank = hvd.rank()
    else:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
    torch.set_num_threads(1)
    fault = FAULTS[name]
    slow = fault if rank in fault.ranks else fault._replace(ms=0.0)
    trainings = [
        _training(folder / "slow", slow, BATCHES),
        _training(folder / "repaired", slow._replace(ms=0.0), None),
    ]
    for _ in range(turns):
        for step, watched, _ in trainings:
            for batch in watched:
                step(*batch)
    for *_, log in trainings:
        log.close()


def _training(folder: Path, fault: Fault, probe_input: int | None) -> tuple[Any, Any, Any]:
    """Return a function that trains on a batch, a watched loader, and its logger."""
    import torch
    from torch import nn

    from stallscope.torch import StepLogger

    class Data(torch.utils.data.Dataset):  # type: ignore[type-arg]  # not installed with the app
        def __len__(self) -> int:
            return STEPS * BATCH

        def __getitem__(self, index: int) -> Any:
            if index % BATCH == 0:
                _spend(fault)
            return torch.full((INPUTS,), index / STEPS / BATCH), index % 4

    layers = [nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    net: Any = nn.Sequential(*layers, nn.Linear(HIDDEN, 4))
    optimizer: Any = torch.optim.SGD(net.parameters(), 0.01)
    model = net
    if "HOROVOD_RANK" in os.environ:
        import horovod.torch as hvd

        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    else:
        model = nn.parallel.DistributedDataParallel(net)
    # A process has one recording of a folder at a time.
    log = StepLogger(
        folder,
        optimizer=optimizer,
        model=None if model is net else model,
        probe_input=probe_input,
        probe_every=STEPS,
        machine=False,
    )
    loader = torch.utils.data.DataLoader(
        Data(), BATCH, num_workers=fault.workers, persistent_workers=fault.workers > 0
    )

    def step(inputs: Any, labels: Any) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step, log.watch(loader), log


def _spend(fault: Fault) -> None:
    if not fault.burns:
        time.sleep(fault.ms / 1e3)
        return
    until = time.thread_time() + fault.ms / 1e3
    while time.thread_time() < until:
        sum(range(1000))


# -- The comparison ---------------------------------------------------------------------------------


def compare(folder: Path) -> str:
    """Return the cells of a row: milliseconds per step, and the error in percent of the real step."""
    from stallscope.analysis import analyse
    from stallscope.parsers import read

    slow, repaired = (analyse(read(str(folder / name))[0]) for name in ("slow", "repaired"))
    probe, achieved = slow.input_probe, repaired.step_ms
    if probe is None or achieved is None:
        return "| – | – | – | – | – | – |"
    error = (probe.probed_ms.value - achieved.value) / probe.real_ms.value
    off = probe.probed_ms.minus(achieved)
    # Without an interval, nothing is claimed.
    holds = "–" if off.ci95 is None else "yes" if off.ci95[0] <= 0 <= off.ci95[1] else "no"
    slowest = probe.slowest
    alone = None if slowest is None else slowest.loader_ms
    cells = (
        _cell(probe.real_ms),
        _cell(alone),
        _cell(probe.probed_ms),
        _cell(achieved),
        f"{error:+.1%}",
        holds,
    )
    return f"| {' | '.join(cells)} |"


def _cell(mean: Any) -> str:
    if mean is None:
        return "–"
    interval = "" if mean.ci95 is None else f" ({mean.ci95[0]:.1f}–{mean.ci95[1]:.1f})"
    return f"{mean.value:.1f}{interval}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--horovod", action="store_true", help="instead of DDP")
    parser.add_argument("--rank-of", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        train(options.rank_of, options.folder, options.turns)
        return
    launcher = ["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    if options.horovod:
        launcher = ["horovodrun", "--disable-cache", "-np", "2", "python"]
    print("| fault | real | loader alone | without stalls | achieved | error | holds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.only:
        with tempfile.TemporaryDirectory() as temporary:
            words = ["--rank-of", name, "--folder", temporary, "--turns", str(options.turns)]
            program = str(Path(__file__).resolve())
            output_of([*launcher, program, *words], TRAINING, {"OMP_NUM_THREADS": "1"})
            print(f"| {name} {compare(Path(temporary))}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
