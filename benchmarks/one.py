"""Run one benchmark in this process; run.py calls it.

python benchmarks/one.py NAME OUT.json [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import machine
from peers import PeerError

# Where permitted, other processes yield the CPU core to the benchmark.
NICENESS = -10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with contextlib.suppress(PermissionError):
        os.nice(NICENESS)
    begun = time.monotonic()
    result: dict[str, object] = {"name": options.name, "figures": [], "failed": None}
    with machine.Contention() as contention:
        try:
            found = importlib.import_module(options.name).figures(options.quick)
            result["figures"] = [asdict(figure) for figure in found]
        except PeerError as error:
            result["failed"] = str(error)
    result |= {
        "seconds": round(time.monotonic() - begun, 1),
        "others": None if contention.others is None else round(contention.others, 3),
        "niceness": os.nice(0),
    }
    options.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
