"""Run one benchmark in this process; run.py calls it.

    python benchmarks/one.py NAME OUT.json [--quick]

Each figure is written as soon as it is measured, so that a benchmark that is ended keeps its figures.
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
from typing import Any

import machine
from peers import PeerError

# If permitted, other processes yield the CPU core to the benchmark.
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
    figures: list[dict[str, Any]] = []
    result: dict[str, Any] = {"name": options.name, "figures": figures, "failed": None}
    with machine.Contention() as contention:
        try:
            for figure in importlib.import_module(options.name).figures(options.quick):
                figures.append(asdict(figure))
                _write(options.out, result)
        except PeerError as error:
            result["failed"] = str(error)
    result |= {
        "seconds": round(time.monotonic() - begun, 1),
        "others": None if contention.others is None else round(contention.others, 3),
        "niceness": os.nice(0),
    }
    _write(options.out, result)


def _write(out: Path, result: dict[str, Any]) -> None:
    """Replace the file in one operation, because this process may be ended at any time."""
    new = out.with_suffix(".new")
    new.write_text(json.dumps(result))
    new.replace(out)


if __name__ == "__main__":
    main()
