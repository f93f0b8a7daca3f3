"""Write dumps of PyTorch's Flight Recorder with real Gloo ranks, where rank 1 has a fault.

    python tools/samples/flight_dumps.py FOLDER CASE [--json]

It wrote the dumps in tests/parsers/flight/. Rank 1 of three

    uneven    has one batch less than the others
    skip      leaves out an all_reduce, and goes on to the broadcast after it
    sleep     sleeps before an all_reduce
    sigstop   is stopped before an all_reduce, and so writes no dump
    order     calls the broadcast before the all_reduce
    subgroup  sleeps, in a process group of ranks 1 and 2
    none      has no fault
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

RANKS = 3
FAULTY = 1
STEPS = 6
#: The step with the fault.
AT = 3
CASES = ("uneven", "skip", "sleep", "sigstop", "order", "subgroup", "none")
# A rank hangs if this many dumps in succession are equal.
_LOOK_EVERY_S = 0.5
_STILL = 6
_PATIENCE_S = 120.0
_FOREVER_S = 600.0


def train(case: str, reached: threading.Event) -> None:
    """Train on one rank, with a fault or without; the event says that it has reached the faulty step."""
    import torch
    from torch import distributed

    faulty = distributed.get_rank() == FAULTY
    pair = distributed.new_group([1, 2], group_desc="pair") if case == "subgroup" else None
    gradients = torch.ones(3, 2)
    for step in range(STEPS):
        if step == AT:
            reached.set()
        strikes = faulty and step == AT
        if strikes and case == "sleep":
            time.sleep(_FOREVER_S)
        if strikes and case == "sigstop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if case == "uneven" and faulty and step == STEPS - 1:
            break
        if strikes and case == "order":
            distributed.broadcast(gradients, 0)
            distributed.all_reduce(gradients)
            continue
        if not (strikes and case == "skip"):
            distributed.all_reduce(gradients)
        if pair is not None and distributed.get_rank() > 0:
            if strikes:
                time.sleep(_FOREVER_S)
            distributed.all_reduce(gradients, group=pair)
        distributed.broadcast(gradients, 0)


def run_rank(folder: Path, case: str, ending: str) -> None:
    """Train, and write the dump of this rank once it hangs."""
    from torch import distributed
    from torch._C import _distributed_c10d as c10d

    distributed.init_process_group("gloo", timeout=timedelta(seconds=_FOREVER_S))

    # Ranks that start at different times do not hang.
    reached = threading.Event()

    def dump() -> None:
        reached.wait()
        last, still = b"", 0
        while still < _STILL:
            time.sleep(_LOOK_EVERY_S)
            now = c10d._dump_fr_trace()
            last, still = now, still + 1 if now == last else 0
        trace = c10d._dump_fr_trace_json() if ending else last
        path = folder / f"trace_rank_{distributed.get_rank()}{ending}"
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.write_bytes(trace)
        unfinished.rename(path)

    threading.Thread(target=dump, daemon=True).start()
    train(case, reached)
    time.sleep(_FOREVER_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--json", dest="ending", action="store_const", const=".json", default="")
    options = parser.parse_args()
    folder: Path = options.folder
    if "RANK" in os.environ:
        run_rank(folder, options.case, options.ending)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCH_FR_BUFFER_SIZE": "100",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "100",
    }
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **shared, "RANK": str(at)})
        for at in range(RANKS)
    ]
    count = RANKS - 1 if options.case == "sigstop" else RANKS
    until = time.monotonic() + _PATIENCE_S

    def is_done() -> bool:
        return len(list(folder.glob(f"trace_rank_*{options.ending}"))) >= count

    # All ranks live until the last dump: a lost connection would change it.
    while not is_done() and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    for rank in ranks:
        rank.kill()
        rank.wait()
    if not is_done():
        sys.exit("the ranks wrote no dumps")


if __name__ == "__main__":
    main()
